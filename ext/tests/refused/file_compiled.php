<?php
// A file that is compiled in this very request: a new one each time.
// expect: a file was not in opcache yet
if (restore_state()) {
    exit('restored');
}
$file = sys_get_temp_dir() . '/compiled-' . uniqid() . '.php';
file_put_contents($file, '<?php return 1;');
touch($file, time() - 100);
require $file;
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
unlink($file);
require __DIR__ . '/../lib/refused.php';
