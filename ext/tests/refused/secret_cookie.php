<?php
// The value of a cookie, kept in all ways.
// send: Cookie: theme=dark; token={secret}
// expect how var: cookie
// expect how prp: cookie
// expect how prv: cookie
// expect how key: cookie
// expect how clo: cookie
// expect how cst: cookie
// expect how fst: cookie
// expect how sta: cookie
// expect how lng: cookie
// expect how big: cookie
// expect how con: cookie
// expect how gen: cookie
// expect how ini: cookie
// expect how env: cookie
// expect how mem: cookie
// expect how hdr: cookie
// expect how srv: cookie
if (restore_state()) {
    exit('restored');
}
require __DIR__ . '/../lib/secrets.php';
extract(keep($_GET['how'], $_COOKIE['token']));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
