--TEST--
status() before anything has happened
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
$status = Slipstream\status();
foreach (['enabled', 'reason', 'mechanism', 'native_pointers_found', 'image', 'snapshots', 'restores', 'restored', 'fallbacks', 'refusals', 'dirty_pages', 'restore_ns'] as $key) {
    if (!array_key_exists($key, $status)) {
        echo "no $key\n";
    }
}
var_dump($status['enabled'], $status['reason'], $status['native_pointers_found'], $status['image'], $status['snapshots'], $status['restores'], $status['restored'], $status['fallbacks'], $status['refusals']);
?>
--EXPECT--
bool(true)
NULL
bool(true)
NULL
int(0)
int(0)
bool(false)
array(0) {
}
array(0) {
}
