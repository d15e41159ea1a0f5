<?php
// A debugger sees all calls from the first one on, also while nobody listens to it.
// needs: so=xdebug
// start: zend_extension=xdebug
// start: xdebug.mode=debug
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
