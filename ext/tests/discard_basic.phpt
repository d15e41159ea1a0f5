--TEST--
discard() with and without an image
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
$before = Slipstream\discard();
$object = new ArrayObject([1, 2, 3]);
snapshot_state();
$between = Slipstream\status()['snapshots'];
Slipstream\discard();
Slipstream\discard();
$object[] = 4;
var_dump($before, $between, count($object), array_key_exists('image', Slipstream\status()), restore_state());
?>
--EXPECT--
NULL
int(1)
int(4)
bool(true)
bool(false)
