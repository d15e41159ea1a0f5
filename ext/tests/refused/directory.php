<?php
// expect: $holder->directory
if (restore_state()) {
    exit('restored');
}
$holder = (object) ['directory' => dir(__DIR__)];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
