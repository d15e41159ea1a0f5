--TEST--
What was refused can be saved once the reason is gone
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
$list = ['engine' => new Random\Engine\Xoshiro256StarStar(1)];
$refusals = 0;
while (Slipstream\status()['image'] === null) {
    try {
        snapshot_state();
    } catch (Slipstream\SnapshotException) {
        $refusals++;
        $list = [];
    }
    if ($refusals > 1) {
        break;
    }
}
var_dump($refusals, is_array(Slipstream\status()['image']), Slipstream\status()['snapshots']);
?>
--EXPECT--
int(1)
bool(true)
int(1)
