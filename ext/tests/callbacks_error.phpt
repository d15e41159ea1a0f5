--TEST--
What is no callback, and callbacks that throw
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
$caught = [];
foreach (['Slipstream\before_snapshot', 'Slipstream\on_restore'] as $register) {
    foreach (['no_such_function', [1, 2], null] as $callback) {
        try {
            $register($callback);
        } catch (TypeError $error) {
            $caught[] = preg_replace('/, .*/', '', $error->getMessage());
        }
    }
}
$throws = true;
Slipstream\before_snapshot(function () use (&$throws) {
    if ($throws) {
        throw new DomainException('thrown while cleaning up');
    }
});
unset($error, $register, $callback);
try {
    snapshot_state();
} catch (DomainException $exception) {
    $caught[] = $exception->getMessage();
}
unset($exception);
$after_exception = Slipstream\status()['snapshots'];
$throws = false;
snapshot_state();
echo implode("\n", $caught), "\n";
var_dump($after_exception, Slipstream\status()['snapshots']);
?>
--EXPECT--
Slipstream\before_snapshot(): Argument #1 ($callback) must be a valid callback
Slipstream\before_snapshot(): Argument #1 ($callback) must be a valid callback
Slipstream\before_snapshot(): Argument #1 ($callback) must be a valid callback
Slipstream\on_restore(): Argument #1 ($callback) must be a valid callback
Slipstream\on_restore(): Argument #1 ($callback) must be a valid callback
Slipstream\on_restore(): Argument #1 ($callback) must be a valid callback
thrown while cleaning up
int(0)
int(1)
