<?php
// expect: process
// expect: $process
if (restore_state()) {
    exit('restored');
}
$process = proc_open(['/bin/sh', '-c', 'exit 0'], [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['file', '/dev/null', 'w']], $pipes);
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
proc_close($process);
