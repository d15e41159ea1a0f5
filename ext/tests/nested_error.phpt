--TEST--
snapshot_state() belongs to the top level of the main script
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
function save()
{
    snapshot_state();
}
$refused = 0;
$ways = ['save', fn () => snapshot_state(), 'snapshot_state_by_eval', fn () => call_user_func('snapshot_state')];
function snapshot_state_by_eval()
{
    eval('snapshot_state();');
}
foreach ($ways as $way) {
    try {
        $way();
    } catch (Slipstream\SnapshotException $exception) {
        $refused++;
    }
}
unset($exception);
var_dump($refused, Slipstream\status()['snapshots'], Slipstream\status()['image']);
?>
--EXPECT--
int(4)
int(0)
NULL
