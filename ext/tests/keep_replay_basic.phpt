--TEST--
With slipstream.keep_replay each restored request has the user and the database of the boot's connection to Redis
--EXTENSIONS--
slipstream
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
require __DIR__ . '/fixtures/replayed.inc';

$names = [];
function show(string $address, string $do): void
{
    global $names;
    $answer = preg_replace_callback('/#(\d+)/', function (array $found) use (&$names) {
        $names[$found[1]] ??= chr(ord('A') + count($names));
        return "connection {$names[$found[1]]}";
    }, strtok(ask($address, $do), "\n"));
    echo str_pad($do, 10), $answer, "\n";
}

$address = serve('AUTH other secret-of-other;SELECT 0;GET key;SELECT 3');
foreach (['cache', 'save', 'see', 'see', 'select', 'see', 'auth', 'see', 'multi', 'see', 'fatal', 'see', 'subscribe', 'see', 'close', 'see', 'plain', 'see'] as $do) {
    show($address, $do);
}
// Those that are no more what the server could be asked on.
foreach (['half', 'see', 'unread', 'see'] as $do) {
    show($address, $do);
}
redis('CLIENT KILL TYPE normal SKIPME yes');
show($address, 'see');
$status = ask($address, 'status');
echo preg_replace('/.*\n/', '', $status), "\n";
var_dump(str_contains($status, 'slipstream.keep_replay'), str_contains($status, 'secret-of-other'));

// Without a name, and without a password.
redis('CONFIG SET requirepass secret-of-all');
$address = serve('AUTH secret-of-all;SELECT 5');
foreach (['cache', 'save', 'auth', 'see'] as $do) {
    show($address, $do);
}
redis('CONFIG SET requirepass ""');
$address = serve('SELECT 5;SELECT 3');
foreach (['cache', 'save', 'select', 'see'] as $do) {
    show($address, $do);
}
stop();
?>
--EXPECT--
cache     booted three, other, database 3 connection A
save      booted three, other, database 3 connection A
see       restored three, other, database 3 connection A
see       restored three, other, database 3 connection A
select    restored three, other, database 3 connection A
see       restored three, other, database 3 connection A
auth      restored three, other, database 3 connection A
see       restored three, other, database 3 connection A
multi     restored three, other, database 3 connection A
see       restored three, other, database 3 connection A
fatal     restored three, other, database 3 connection A
see       restored three, other, database 3 connection A
subscribe restored three, other, database 3 connection A
see       restored three, other, database 3 connection A
close     restored three, other, database 3 connection A
see       restored three, other, database 3 connection A
plain     restored zero, default, database 0 connection B
see       restored three, other, database 3 connection A
half      restored three, other, database 3 connection A
see       restored three, other, database 3 connection C
unread    restored three, other, database 3 connection C
see       restored three, other, database 3 connection D
see       restored three, other, database 3 connection E
20 replayed, refused {"closed":1,"unread":1,"half":1}
bool(true)
bool(false)
cache     booted five, default, database 5 connection F
save      booted five, default, database 5 connection F
auth      restored five, default, database 5 connection F
see       restored five, default, database 5 connection F
cache     booted three, default, database 3 connection G
save      booted three, default, database 3 connection G
select    restored three, default, database 3 connection G
see       restored three, default, database 3 connection G
