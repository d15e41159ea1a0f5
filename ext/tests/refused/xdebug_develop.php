<?php
// Xdebug keeps a stack of its own, made from the calls that it has seen.
// needs: so=xdebug
// start: zend_extension=xdebug
// start: xdebug.mode=develop
// expect: observes calls
if (restore_state()) {
    exit('restored');
}
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
