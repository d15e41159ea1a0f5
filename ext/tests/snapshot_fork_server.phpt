--TEST--
A child that outlives its request boots and is saved by itself, and its parent goes on restoring
--EXTENSIONS--
slipstream
pcntl
posix
--SKIPIF--
<?php
if (!function_exists("opcache_get_status") || !opcache_get_status(false)) {
    die("skip needs opcache in the command line");
}
?>
--FILE--
<?php
// The built-in server makes a second server of a child whose request has ended. Its parent waits for it until then, so
// every request in between is the child's, and which of the two answers is never left to chance.
$command = 'exec ' . getenv('TEST_PHP_EXECUTABLE') . ' ' . getenv('TEST_PHP_EXTRA_ARGS') . ' -d opcache.enable_cli=1'
    . ' -d opcache.validate_timestamps=0 -d output_buffering=0 -S 127.0.0.1:0 -t ' . escapeshellarg(__DIR__ . '/fixtures');
$server = proc_open($command, [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['pipe', 'w']], $pipes);
$pid = proc_get_status($server)['pid'];
while (!preg_match('~http://(\S+)\) started~', (string) fgets($pipes[2]), $match)) {
    if (feof($pipes[2])) {
        die('the server does not start');
    }
}
function ask(string $do): void
{
    global $match, $pid, $open;
    $connection = stream_socket_client("tcp://$match[1]");
    stream_set_timeout($connection, 60);
    fwrite($connection, "GET /forks.php?do=$do&server=$pid HTTP/1.1\r\nHost: tests.example\r\nConnection: close\r\n\r\n");
    while (($line = fgets($connection)) !== false && rtrim($line) !== '') {
    }
    $lines = [rtrim((string) fgets($connection)), rtrim((string) fgets($connection))];
    echo str_pad($do, 12), implode(', ', array_filter($lines)) ?: 'no answer', "\n";
    // Open to the end: the parent may still answer, too.
    $open[] = $connection;
}
foreach (['cache', 'save', 'restore', 'restore', 'fork-after', 'next', 'next', 'end', 'restore', 'restore',
        'fork-before', 'next', 'next', 'end', 'restore', 'restore'] as $do) {
    ask($do);
}
proc_terminate($server);
?>
--EXPECT--
cache       parent booted, list 10001, log 1, requests 1, 0 snapshots, 0 restores, no image, destructed
save        parent booted, list 10001, log 1, requests 1, 1 snapshots, 0 restores, an image, destructed
restore     parent restored, list 10001, log 1, requests 1, 1 snapshots, 1 restores, an image, destructed
restore     parent restored, list 10001, log 1, requests 1, 1 snapshots, 2 restores, an image, destructed
fork-after  child restored, list 10001, log 1, requests 1, 1 snapshots, 3 restores, an image, destructed
next        child booted, list 10001, log 1, requests 1, 2 snapshots, 3 restores, an image, {"forked":1}, destructed
next        child restored, list 10001, log 1, requests 1, 2 snapshots, 4 restores, an image, {"forked":1}, destructed
end         no answer
restore     parent restored, list 10001, log 1, requests 1, 1 snapshots, 4 restores, an image, destructed
restore     parent restored, list 10001, log 1, requests 1, 1 snapshots, 5 restores, an image, destructed
fork-before child booted, list 10001, log 1, requests 1, 1 snapshots, 5 restores, no image, {"forked":1}, destructed
next        child booted, list 10001, log 1, requests 1, 2 snapshots, 5 restores, an image, {"forked":1}, destructed
next        child restored, list 10001, log 1, requests 1, 2 snapshots, 6 restores, an image, {"forked":1}, destructed
end         no answer
restore     parent restored, list 10001, log 1, requests 1, 1 snapshots, 7 restores, an image, destructed
restore     parent restored, list 10001, log 1, requests 1, 1 snapshots, 8 restores, an image, destructed
