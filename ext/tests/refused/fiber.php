<?php
// expect: Fiber
// expect: $app->fiber
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->fiber = new Fiber(function () {
    $x = Fiber::suspend('first');
    return Fiber::suspend("then $x");
});
$app->fiber->start();
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
echo $app->fiber->resume('resumed'), "\n";
