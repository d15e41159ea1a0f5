<?php
// A file that opcache leaves out because it was edited a moment ago; the script itself is old enough after the first request.
// needs: sapi=cli-server
// ini: opcache.file_update_protection=30
// expect: edited just now
if (restore_state()) {
    exit('restored');
}
touch(__FILE__, time() - 100);
$file = sys_get_temp_dir() . '/left-out-' . getmypid() . '.php';
file_put_contents($file, '<?php return 1;');
require $file;
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
unlink($file);
require __DIR__ . '/../lib/refused.php';
