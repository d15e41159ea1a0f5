<?php
// A file that is edited after the boot has read it and before the snapshot: the image must not go on to hold what it was.
if (!restore_state()) {
    $value = require __DIR__ . '/late_value.php';
    if (isset($_GET['e'])) {
        rename(__DIR__ . '/late_value.new', __DIR__ . '/late_value.php');
    }
    snapshot_state();
}
echo $value;
