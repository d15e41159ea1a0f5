<?php
// Waits in the middle, and runs code and reads constants of the image afterwards.
if (!restore_state()) {
    require __DIR__ . '/booted.php';
    require __DIR__ . '/faults.php';
    $edited_at_boot = require __DIR__ . '/edited_boot.php';
    $kernel = boot();
    $booted = ['main' => true];
    snapshot_state();
}
usleep(1_000 * (int) ($_GET['u'] ?? 0));
handle($kernel, $edited_at_boot);
