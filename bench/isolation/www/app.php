<?php
// The application, saved and restored.
if (!restore_state()) {
    require __DIR__ . '/application.php';
    $container = boot();
    snapshot_state();
}
handle($container);
