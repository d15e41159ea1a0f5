<?php
// Without opcache nothing holds the code. The extension may be off altogether then, and say why.
// ini: opcache.enable=0
// expect: opcache
if (restore_state()) {
    exit('restored');
}
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
if (!Slipstream\status()['enabled']) {
    $message ??= Slipstream\status()['reason'];
}
require __DIR__ . '/../lib/refused.php';
