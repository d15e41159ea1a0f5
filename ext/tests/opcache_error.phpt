--TEST--
Without opcache there is no snapshot, and a reason
--EXTENSIONS--
slipstream
--INI--
opcache.enable_cli=0
output_buffering=0
--FILE--
<?php
$restored = restore_state();
$reason = Slipstream\status()['reason'];
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $reason ??= $refused->getMessage();
}
var_dump($restored, stripos((string) $reason, 'opcache') !== false, Slipstream\status()['image'], Slipstream\status()['snapshots']);
?>
--EXPECT--
bool(false)
bool(true)
NULL
int(0)
