<?php
// The application that is saved and restored, and all that can go wrong in a request of it.
if (!restore_state()) {
    require __DIR__ . '/booted.php';
    require __DIR__ . '/faults.php';
    $edited_at_boot = require __DIR__ . '/edited_boot.php';
    $kernel = boot();
    $booted = ['main' => true];
    snapshot_state();
}
handle($kernel, $edited_at_boot);
