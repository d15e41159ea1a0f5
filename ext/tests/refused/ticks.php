<?php
// expect: tick
declare(ticks=1);
if (restore_state()) {
    exit('restored');
}
register_tick_function(function () {
    static $ticks = 0;
    $ticks++;
});
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
