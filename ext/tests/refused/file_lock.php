<?php
// A file that the boot has locked: every request would have to wait for the lock again.
// expect: locked
// expect: $locked
if (restore_state()) {
    exit('restored');
}
$locked = tmpfile();
flock($locked, LOCK_EX);
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
