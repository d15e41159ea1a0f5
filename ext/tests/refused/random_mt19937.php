<?php
// needs: random
// expect: Random\Engine\Mt19937
// expect: $app->services['engine']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'engine' => new Random\Engine\Mt19937(5)];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
