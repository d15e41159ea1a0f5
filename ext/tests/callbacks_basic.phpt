--TEST--
before_snapshot() and on_restore(): which is called, when, in which order
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
class Cleaner
{
    public array $log = [];

    public function clean()
    {
        $this->log[] = Slipstream\status()['snapshots'];
    }
}
$cleaner = new Cleaner();
$order = [];
Slipstream\before_snapshot(function () use (&$order) {
    $order[] = 'first';
});
Slipstream\before_snapshot([$cleaner, 'clean']);
Slipstream\before_snapshot(function () use (&$order) {
    $order[] = 'second';
});
Slipstream\on_restore(function () use (&$order) {
    $order[] = 'never here';
});
$engine = new Random\Engine\Mt19937(1);
Slipstream\before_snapshot(function () use (&$engine) {
    $engine = null;
});
snapshot_state();
echo implode(' ', $order), ' ', json_encode($cleaner->log), ' ', Slipstream\status()['snapshots'], "\n";
?>
--EXPECT--
first second [0] 1
