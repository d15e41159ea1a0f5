<?php
// A value of the body of a form.
// post: name=Ada&password={secret}
// expect how var: body
// expect how prv: body
// expect how lng: body
if (restore_state()) {
    exit('restored');
}
require __DIR__ . '/../lib/secrets.php';
extract(keep($_GET['how'], $_POST['password']));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
