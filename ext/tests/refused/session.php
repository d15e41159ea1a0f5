<?php
// A session that is open when the state would be saved.
// ini: session.use_cookies=0
// ini: session.cache_limiter=
// expect: session
if (restore_state()) {
    exit('restored');
}
ini_set('session.save_path', sys_get_temp_dir());
session_id('of-the-tests');
session_start();
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
