--TEST--
Objects that cannot be saved are named, and the script goes on without them
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
class App
{
    public array $services = [];
}
$app = new App();
$app->services['random'] = new Random\Engine\Mt19937(1);
$messages = [];
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $messages[] = $refused->getMessage();
}
unset($app->services['random'], $refused);
$fiber = new Fiber(function () {
    $got = Fiber::suspend();
    echo "the fiber goes on with $got\n";
});
$fiber->start();
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $messages[] = $refused->getMessage();
}
$between = Slipstream\status();
$fiber->resume('a value');
unset($fiber, $refused);
echo implode("\n", $messages), "\n";
var_dump($between['image'], $between['snapshots'], array_sum($between['refusals']));
?>
--EXPECTF--
the fiber goes on with a value
%ARandom\Engine\Mt19937%A$app->services['random']%A
%AFiber%A$fiber%A
NULL
int(0)
int(2)
