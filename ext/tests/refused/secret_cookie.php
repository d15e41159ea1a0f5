<?php
// The value of a cookie, kept in all ways.
// send: Cookie: theme=dark; token=kiwi-5f2a9c71e0
// never: kiwi-5f2a9c71e0
// expect ?how=variable: cookie
// expect ?how=property: cookie
// expect ?how=private: cookie
// expect ?how=key: cookie
// expect ?how=closure: cookie
// expect ?how=closure_static: cookie
// expect ?how=function_static: cookie
// expect ?how=class_static: cookie
// expect ?how=longer: cookie
// expect ?how=huge: cookie
// expect ?how=constant: cookie
// expect ?how=generator: cookie
// expect ?how=ini: cookie
// expect ?how=environment: cookie
// expect ?how=memory_stream: cookie
// expect ?how=header: cookie
// expect ?how=server: cookie
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
