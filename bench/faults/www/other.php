<?php
// Another script of the same worker, with the same code: it must never get the image of the first one.
if (!restore_state()) {
    require __DIR__ . '/booted.php';
    require __DIR__ . '/faults.php';
    $edited_at_boot = require __DIR__ . '/edited_boot.php';
    $kernel = boot();
    $booted = ['other' => true];
    snapshot_state();
}
handle($kernel, $edited_at_boot);
