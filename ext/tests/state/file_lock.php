<?php
// A file that the boot has locked: nobody else gets the lock, not even after a request has given it back.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    file_put_contents(scratch('locked'), "first line\nsecond line\n");
    $locked = fopen(scratch('locked'), 'r+');
    flock($locked, LOCK_EX);
    fgets($locked);
    snapshot_state();
}

$other = fopen(scratch('locked'), 'r+');
$got = flock($other, LOCK_EX | LOCK_NB);
fclose($other);
report(['lock of another' => $got, 'read' => fgets($locked)]);

flock($locked, LOCK_UN);
