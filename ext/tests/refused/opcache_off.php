<?php
// ini: opcache.enable=0
// expect: opcache
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
