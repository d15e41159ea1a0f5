<?php
// needs: pdo
// expect: PDO
// expect: $app->services['db']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'db' => (new ReflectionClass('PDO'))->newInstanceWithoutConstructor()];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
