<?php
// The value of a header of which we know nothing.
// send: X-Api-Key: {secret}
// expect how var: api%skey
// expect how key: api%skey
// expect how clo: api%skey
// expect how lng: api%skey
if (restore_state()) {
    exit('restored');
}
require __DIR__ . '/../lib/secrets.php';
extract(keep($_GET['how'], $_SERVER['HTTP_X_API_KEY']));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
