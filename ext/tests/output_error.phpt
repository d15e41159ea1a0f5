--TEST--
Output that was made, or is being made, is not saved
--EXTENSIONS--
slipstream
--SKIPIF--
<?php
if (!function_exists("opcache_get_status") || !opcache_get_status(false)) {
    die("skip needs opcache in the command line");
}
?>
--INI--
opcache.enable_cli=1
output_buffering=0
--FILE--
<?php
restore_state();
ob_start();
$messages = [];
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $messages[] = $refused->getMessage();
}
ob_end_clean();
echo "printed\n";
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $messages[] = $refused->getMessage();
}
echo count($messages), ' ', count(preg_grep('/output/i', $messages)), "\n";
var_dump(Slipstream\status()['snapshots']);
?>
--EXPECT--
printed
2 2
int(0)
