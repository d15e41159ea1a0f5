<?php
// Compiled traces are not part of the state.
// start: opcache.jit=tracing
// start: opcache.jit_buffer_size=16M
// expect: JIT
if (restore_state()) {
    exit('restored');
}
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
