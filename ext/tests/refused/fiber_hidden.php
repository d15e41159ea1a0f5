<?php
// A suspended fiber that only the list of shutdown functions holds.
// expect: Fiber
if (restore_state()) {
    exit('restored');
}
(function () {
    $fiber = new Fiber(fn () => Fiber::suspend());
    $fiber->start();
    register_shutdown_function(fn () => $fiber->resume());
})();
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
