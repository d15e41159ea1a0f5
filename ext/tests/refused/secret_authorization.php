<?php
// A token of the header Authorization.
// send: Authorization: Bearer {secret}
// expect how var: authorization
// expect how prv: authorization
// expect how lng: authorization
if (restore_state()) {
    exit('restored');
}
require __DIR__ . '/../lib/secrets.php';
extract(keep($_GET['how'], substr($_SERVER['HTTP_AUTHORIZATION'], 7)));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
