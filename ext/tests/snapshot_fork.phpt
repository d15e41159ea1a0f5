--TEST--
A child that is forked after the snapshot lives and ends like its parent
--EXTENSIONS--
slipstream
pcntl
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
class Loud
{
    public function __destruct()
    {
        $GLOBALS['log'][] = 'destructed';
        echo getmypid() === $GLOBALS['parent'] ? "destructed in the parent\n" : "destructed in the child\n";
    }
}
$parent = getmypid();
$log = [];
$loud = new Loud();
$list = range(1, 10_000);
snapshot_state();
$child = pcntl_fork();
if ($child === 0) {
    $list[] = 'child';
    echo 'child ', count($list), "\n";
    exit(3);
}
pcntl_waitpid($child, $status);
echo 'parent ', count($list), ' ', pcntl_wifexited($status) ? pcntl_wexitstatus($status) : 'killed', "\n";
?>
--EXPECT--
child 10001
destructed in the child
parent 10000 3
destructed in the parent
