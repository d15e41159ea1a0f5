<?php
// A cookie that the boot sets is for one visitor.
// expect how setcookie: Set-Cookie
// expect how header: Set-Cookie
if (restore_state()) {
    exit('restored');
}
if ($_GET['how'] === 'setcookie') {
    setcookie('visitor', 'for-one-visitor');
} else {
    header('set-cookie: visitor=for-one-visitor; HttpOnly', false);
}
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
