<?php
// expect: header_register_callback
if (restore_state()) {
    exit('restored');
}
header_register_callback(fn () => header('X-Callback: called'));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
