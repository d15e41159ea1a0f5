<?php
// What is seen of a connection, and in what state a page leaves it.

/** What the server says of this connection, as far as it is the same of all new ones. */
function seen(object $client): array
{
    if ($client instanceof SmallMemcached) {
        return ['value' => $client->get('key'), 'id' => $client->name()];
    }
    $value = $client->command('GET', 'key');
    preg_match_all('/(\S+?)=(\S*)/', $client->command('CLIENT', 'INFO'), $found);
    $info = array_combine($found[1], $found[2]);
    // Valkey says 0 in place of -1 of whoever has had a transaction, also by itself. Flag x is of one that is under way.
    if (!str_contains($info['flags'], 'x') && $info['multi'] === '0') {
        $info['multi'] = '-1';
    }
    $same = array_flip(['name', 'db', 'sub', 'psub', 'multi', 'watch', 'flags', 'redir', 'user', 'resp']);
    return ['value' => $value, 'info' => array_intersect_key($info, $same), 'id' => $info['id']];
}

/** Leaves it in that state. Those that are written by hand need the small client. */
function leave(object $client, string $how): void
{
    if ($client instanceof SmallMemcached) {
        leave_memcached($client, $how);
        return;
    }
    match ($how) {
        'clean' => null,
        'select' => $client->command('SELECT', '3'),
        'multi' => [$client->command('MULTI'), $client->command('SET', 'key', 'wrong')],
        'watch' => $client->command('WATCH', 'key'),
        'subscribe' => $client->command('SUBSCRIBE', 'channel'),
        'psubscribe' => $client->command('PSUBSCRIBE', 'chan*'),
        'monitor' => $client->command('MONITOR'),
        'auth' => $client->command('AUTH', 'other', 'secret'),
        'name' => $client->command('CLIENT', 'SETNAME', 'somebody'),
        'tracking' => $client->command('CLIENT', 'TRACKING', 'ON'),
        'resp3' => $client->command('HELLO', '3'),
        'no-evict' => $client->command('CLIENT', 'NO-EVICT', 'ON'),
        'error' => failing(fn () => $client->command('NO-SUCH-COMMAND')),
        // From here on what is sent is more than what is read, or less than a command.
        'reply-off' => $client->write($client::encode('CLIENT', 'REPLY', 'OFF')),
        'reply-skip' => $client->write($client::encode('CLIENT', 'REPLY', 'SKIP')),
        'unread' => $client->write($client::encode('GET', 'key')),
        'unread-part' => [$client->write($client::encode('GET', 'large')), $client->take(10)],
        'pipeline' => [$client->write(str_repeat($client::encode('GET', 'key'), 100)), array_map(fn () => $client->read(), range(1, 50))],
        // Its answer looks like the one to the reset.
        'own-reset' => $client->write($client::encode('RESET')),
        'half-array' => $client->write("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n"),
        // The reset would be the value.
        'half-value' => $client->write("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$13\r\n"),
        'half-inline' => $client->write('SET key '),
        'nonsense' => $client->write("*1\r\n+PING\r\n"),
        'blocked' => $client->write($client::encode('BLPOP', 'nothing', '0')),
        'blocked-behind' => [$client->write($client::encode('GET', 'key') . $client::encode('BLPOP', 'nothing', '0')), $client->read()],
        'timeout' => [$client->timeout(50_000), $client->write($client::encode('BLPOP', 'nothing', '1')), failing(fn () => $client->read())],
    };
}

function leave_memcached(SmallMemcached $client, string $how): void
{
    match ($how) {
        'clean' => null,
        'get' => $client->get('key'),
        'set' => $client->command("set other 0 60 5\r\nvalue"),
        'meta' => [$client->command("ms other 5 T60\r\nvalue"), $client->command('mg other v'), $client->line()],
        'noreply' => $client->write("set other 0 60 5 noreply\r\nvalue\r\n"),
        'quiet' => $client->write("mg nothing v q\r\nms other 5 q\r\nvalue\r\n"),
        'error' => $client->command('no-such-command'),
        'not-stored' => $client->command("add key 0 60 5\r\nvalue"),
        // From here on what is sent is more than what is read, or less than a command.
        'unread' => $client->write("get key\r\n"),
        'unread-part' => [$client->write("get large\r\n"), $client->take(10)],
        'unread-error' => $client->write("no-such-command\r\n"),
        'pipeline' => [$client->write(str_repeat("mn\r\n", 100)), array_map(fn () => $client->line(), range(1, 50))],
        'own-reset' => $client->write("mn\r\n"),
        'half-line' => $client->write('get ke'),
        // The reset would be the value.
        'half-block' => $client->write("set key 0 0 2\r\n"),
        'half-end' => $client->write("set key 0 0 5\r\nwrong"),
        'half-meta' => $client->write("ms key 2\r\n"),
        'bad-number' => $client->write("set key 0 0 two\r\nmn\r\n"),
        'too-long' => $client->write("set key 0 0 2\r\nwrong\r\n"),
        'watch' => $client->command('watch fetchers'),
        'binary' => $client->write("\x80\x0a" . str_repeat("\0", 22)),
        'quit' => $client->write("quit\r\n"),
        'timeout' => [$client->write('get '), $client->timeout(50_000), failing(fn () => $client->line())],
        'login' => $client->command("set auth 0 0 15\r\nsomebody secret"),
    };
}

function failing(callable $work): void
{
    try {
        $work();
    } catch (Throwable) {
    }
}
