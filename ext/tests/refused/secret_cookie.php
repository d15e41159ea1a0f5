<?php
// The value of a cookie, kept in all ways.
// send: Cookie: theme=dark; token=kiwi-5f2a9c71e0
// never: kiwi-5f2a9c71e0
// expect ?how=variable: $kept
// expect ?how=property: $keeper->value
// expect ?how=private: $keeper->hidden
// expect ?how=key: $map
// expect ?how=closure: $closure
// expect ?how=closure_static: $closure
// expect ?how=function_static: kept
// expect ?how=class_static: Keeper::$shared
// expect ?how=longer: $log[0]
// expect ?how=huge: $text
// expect ?how=constant: KEPT
// expect ?how=generator: $generator
// expect ?how=ini: %a
// expect ?how=environment: %a
// expect ?how=memory_stream: %a
// expect ?how=header: %a
// expect ?how=server: $_SERVER['KEPT']
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
