<?php
// needs: mysqli
// expect: mysqli_stmt
// expect: $app->services['statement']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'statement' => (new ReflectionClass('mysqli_stmt'))->newInstanceWithoutConstructor()];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
