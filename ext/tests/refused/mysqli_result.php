<?php
// needs: mysqli
// expect: mysqli_result
// expect: $app->services['result']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'result' => (new ReflectionClass('mysqli_result'))->newInstanceWithoutConstructor()];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
