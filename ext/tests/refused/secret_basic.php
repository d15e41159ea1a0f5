<?php
// Name and password of basic authentication, which PHP decodes.
// send: Authorization: Basic {secret64}
// expect how var: auth
// expect how prp: auth
if (restore_state()) {
    exit('restored');
}
require __DIR__ . '/../lib/secrets.php';
extract(keep($_GET['how'], $_SERVER['PHP_AUTH_PW']));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
