<?php
// A token of the header Authorization.
// send: Authorization: Bearer tok-8c1f77d2aa03
// never: tok-8c1f77d2aa03
// expect ?how=variable: authorization
// expect ?how=private: authorization
// expect ?how=longer: authorization
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
