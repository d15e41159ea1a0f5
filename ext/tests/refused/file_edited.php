<?php
// A file that is edited after the boot has read it, keeps an old time, and is in opcache in its new form already.
// ini: opcache.validate_timestamps=1
// ini: opcache.revalidate_freq=0
// expect: edited just now
if (restore_state()) {
    exit('restored');
}
$file = sys_get_temp_dir() . '/edited-' . getmypid() . '.php';
file_put_contents($file, '<?php return "old";');
touch($file, time() - 2000);
opcache_invalidate($file, true);
$value = require $file;
file_put_contents($file, '<?php return "new";');
touch($file, time() - 1000);
opcache_invalidate($file, true);
// As another worker may do.
require $file;
require $file;
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
unlink($file);
require __DIR__ . '/../lib/refused.php';
