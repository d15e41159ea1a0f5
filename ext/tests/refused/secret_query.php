<?php
// A value of the query string, decoded.
// never: grape juice/7d1e
// expect ?how=variable&token=grape%20juice%2F7d1e: query
// expect ?how=longer&token=grape%20juice%2F7d1e: query
// expect ?how=key&token=grape%20juice%2F7d1e: query
if (restore_state()) {
    exit('restored');
}
require __DIR__ . '/../lib/secrets.php';
extract(keep($_GET['how'], $_GET['token']));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
