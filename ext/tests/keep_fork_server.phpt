--TEST--
A stream to Redis that a snapshot holds has one connection in each process, also after a fork
--EXTENSIONS--
slipstream
pcntl
posix
--SKIPIF--
<?php
if (!function_exists("opcache_get_status") || !opcache_get_status(false)) {
    die("skip needs opcache in the command line");
}
if (!is_executable("/usr/bin/redis-server")) {
    die("skip needs redis-server");
}
?>
--FILE--
<?php
// As snapshot_fork_server.phpt: each request is the child's until that ends.
$probe = stream_socket_server('tcp://127.0.0.1:0');
$port = substr(strrchr(stream_socket_get_name($probe, false), ':'), 1);
fclose($probe);
$nothing = [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['file', '/dev/null', 'w']];
$redis = proc_open("exec redis-server --bind 127.0.0.1 --port $port --save '' --appendonly no", $nothing, $none, sys_get_temp_dir());
for ($limit = time() + 60; !($first = @stream_socket_client("tcp://127.0.0.1:$port")); usleep(1000)) {
    if (time() > $limit) {
        die('redis-server does not start');
    }
}
putenv("REDIS_PORT=$port");
$command = 'exec ' . getenv('TEST_PHP_EXECUTABLE') . ' ' . getenv('TEST_PHP_EXTRA_ARGS') . ' -d opcache.enable_cli=1'
    . " -d opcache.validate_timestamps=0 -d output_buffering=0 -d slipstream.keep=redis://127.0.0.1:$port -S 127.0.0.1:0 -t "
    . escapeshellarg(__DIR__ . '/fixtures');
$server = proc_open($command, [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['pipe', 'w']], $pipes);
$pid = proc_get_status($server)['pid'];
while (!preg_match('~http://(\S+)\) started~', (string) fgets($pipes[2]), $match)) {
    if (feof($pipes[2])) {
        die('the server does not start');
    }
}
function ask(string $do): void
{
    global $match, $pid, $open, $names;
    $connection = stream_socket_client("tcp://$match[1]");
    stream_set_timeout($connection, 60);
    fwrite($connection, "GET /connections.php?do=$do&server=$pid HTTP/1.1\r\nHost: tests.example\r\nConnection: close\r\n\r\n");
    while (($line = fgets($connection)) !== false && rtrim($line) !== '') {
    }
    $line = preg_replace_callback('/connection (\d+)/', function ($found) use (&$names) {
        $names[$found[1]] ??= chr(ord('A') + count($names ?? []));
        return "connection {$names[$found[1]]}";
    }, rtrim((string) fgets($connection)));
    echo str_pad($do, 8), $line ?: 'no answer', "\n";
    // Open to the end: the parent may still answer, too.
    $open[] = $connection;
}
foreach (['cache', 'save', 'restore', 'select', 'restore', 'fork', 'next', 'next', 'select', 'next', 'end', 'restore', 'restore'] as $do) {
    ask($do);
}
fwrite($first, "INFO stats\r\n");
$length = (int) substr(fgets($first), 1);
preg_match('/total_connections_received:(\d+)/', stream_get_contents($first, $length), $found);
echo $found[1] - 1, " connections\n";
proc_terminate($server);
proc_terminate($redis);
?>
--EXPECT--
cache   parent booted +PONG, connection A, database 0
save    parent booted +PONG, connection A, database 0
restore parent restored +PONG, connection A, database 0
select  parent restored +PONG, connection A, database 0
restore parent restored +PONG, connection A, database 0
fork    child restored +PONG, connection A, database 0
next    child booted +PONG, connection B, database 0
next    child restored +PONG, connection B, database 0
select  child restored +PONG, connection B, database 0
next    child restored +PONG, connection B, database 0
end     no answer
restore parent restored +PONG, connection A, database 0
restore parent restored +PONG, connection A, database 0
2 connections
