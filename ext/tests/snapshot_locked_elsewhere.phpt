--TEST--
A file that another process has locked can be part of a snapshot: that lock is not ours to keep
--SKIPIF--
<?php
if (!extension_loaded('pcntl')) {
    die('skip no pcntl');
}
?>
--INI--
opcache.enable_cli=1
output_buffering=0
--FILE--
<?php
$path = __DIR__ . '/snapshot_locked_elsewhere.lock';
touch($path);
[$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
$child = pcntl_fork();
if ($child === 0) {
    pcntl_alarm(60);
    $file = fopen($path, 'r');
    flock($file, LOCK_EX);
    fwrite($theirs, 'locked');
    while (true) {
        sleep(60);
    }
}
fread($ours, 6);
fclose($ours);
fclose($theirs);
$file = fopen($path, 'r');
$message = 'saved';
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
posix_kill($child, SIGKILL);
pcntl_waitpid($child, $status);
unlink($path);
echo $message, "\n";
?>
--EXPECT--
saved
