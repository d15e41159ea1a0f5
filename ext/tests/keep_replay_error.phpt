--TEST--
A connection of a boot that cannot be told again who it is is never used: another one, none, or no snapshot at all
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

function show(string $address, string $do, string $query = ''): void
{
    echo str_pad($do, 10), preg_replace('/ #\d+/', '', strtok(ask($address, $do, $query), "\n")), "\n";
}

echo "-- another password meanwhile\n";
$address = serve('AUTH other secret-of-other;SELECT 3');
foreach (['cache', 'save', 'see'] as $do) {
    show($address, $do);
}
redis('ACL SETUSER other resetpass >another');
// It was told before that.
show($address, 'select');
show($address, 'see');
show($address, 'see');
redis('ACL SETUSER other resetpass >secret-of-other');
show($address, 'see');
show($address, 'see');
echo preg_replace('/.*\n/', '', ask($address, 'status')), "\n";
echo "-- the user is gone\n";
redis('ACL DELUSER other');
show($address, 'see');
redis('ACL SETUSER other on >secret-of-other ~* +get');
echo "-- may not select, nor be asked\n";
show($address, 'see');
redis('ACL SETUSER other on >secret-of-other ~* +@all');
show($address, 'see');

foreach ([
    'option off' => ['AUTH other secret-of-other', false],
    'option off, select' => ['SELECT 3', false],
    'wrong password' => ['AUTH other wrong'],
    'wrong password, then the right one' => ['AUTH other wrong;AUTH other secret-of-other'],
    'no such database' => ['SELECT 3;SELECT 99'],
    'a line' => ['!AUTH other secret-of-other\r\n'],
    'a line, select' => ['!SELECT 3\r\n'],
    'at once with another one' => ['!*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n;reply'],
    'queued' => ['MULTI;SELECT 3;EXEC;reply'],
    'hello' => ['HELLO 2 AUTH other secret-of-other' . str_repeat(';reply', 14)],
    'a name' => ['AUTH other secret-of-other;CLIENT SETNAME somebody'],
    'too long' => ['AUTH other secret-of-other;SELECT 3;AUTH third secret-of-third;SELECT 5;AUTH other secret-of-other'],
    'of the request' => ['password'],
] as $what => $case) {
    [$boot, $replays] = [...$case, true];
    echo "-- $what\n";
    $address = serve($boot, $replays);
    foreach (['cache', 'save', 'see'] as $do) {
        show($address, $do, '&password=secret-of-other');
    }
}
stop();
?>
--EXPECT--
-- another password meanwhile
cache     booted three, other, database 3
save      booted three, other, database 3
see       restored three, other, database 3
select    restored three, other, database 3
see       restored no reply
see       restored no reply
see       restored three, other, database 3
see       restored three, other, database 3
4 replayed, refused {"replay":3}
-- the user is gone
see       restored no reply
-- may not select, nor be asked
see       restored no reply
see       restored three, other, database 3
-- option off
cache     booted zero, other, database 0
save      booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- option off, select
cache     booted three, default, database 3
save      booted three, default, database 3: its connection is not like a new one: a database, a name, a user or another state was given on it
see       booted three, default, database 3: its connection is not like a new one: a database, a name, a user or another state was given on it
-- wrong password
cache     booted zero, default, database 0
save      booted zero, default, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted zero, default, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- wrong password, then the right one
cache     booted zero, other, database 0
save      booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- no such database
cache     booted three, default, database 3
save      booted three, default, database 3: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted three, default, database 3: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- a line
cache     booted zero, other, database 0
save      booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- a line, select
cache     booted three, default, database 3
save      booted three, default, database 3: its connection is not like a new one: a database, a name, a user or another state was given on it
see       booted three, default, database 3: its connection is not like a new one: a database, a name, a user or another state was given on it
-- at once with another one
cache     booted three, default, database 3
save      booted three, default, database 3: its connection is not like a new one: a database, a name, a user or another state was given on it
see       booted three, default, database 3: its connection is not like a new one: a database, a name, a user or another state was given on it
-- queued
cache     booted three, default, database 3
save      booted three, default, database 3: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted three, default, database 3: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- hello
cache     booted zero, other, database 0
save      booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted zero, other, database 0: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- a name
cache     booted zero, other, database 0
save      booted zero, other, database 0: its connection is not like a new one: a database, a name, a user or another state was given on it
see       booted zero, other, database 0: its connection is not like a new one: a database, a name, a user or another state was given on it
-- too long
cache     booted five, other, database 5
save      booted five, other, database 5: its connection is not like a new one: a password, a version of the protocol or another state was given on it
see       booted five, other, database 5: its connection is not like a new one: a password, a version of the protocol or another state was given on it
-- of the request
cache     booted zero, other, database 0
save      booted zero, other, database 0: the state contains the request's query parameter password: a snapshot must not hold what belongs to a user
see       booted zero, other, database 0: the state contains the request's query parameter password: a snapshot must not hold what belongs to a user
