<?php
/**
 * Asks Redis through phpredis: one connection per request, ?gets=N GETs of 4 KB (20).
 * ?via=unix uses the socket file instead of TCP, ?persistent=1 keeps the connection for later requests.
 */

const VALUE_BYTES = 4096;
const KEYS = 64;

$gets = max(0, min(100000, (int) ($_GET['gets'] ?? 20)));
$redis = connect_redis(($_GET['via'] ?? 'tcp') === 'unix', !empty($_GET['persistent']));
$bytes = 0;
for ($i = 0; $i < $gets; $i++) {
    $bytes += strlen(fetch_value($redis, 'lab:value:' . $i % KEYS));
}
header('Content-Type: application/json');
echo json_encode(['page' => 'redis', 'gets' => $gets, 'bytes' => $bytes]), "\n";

function connect_redis(bool $unix, bool $persistent): Redis
{
    $redis = new Redis();
    $address = $unix ? [getenv('LAB_REDIS_SOCKET')] : ['127.0.0.1', (int) getenv('LAB_REDIS_PORT')];
    $persistent ? $redis->pconnect(...$address) : $redis->connect(...$address);
    return $redis;
}

/** The value of a key, written by whoever asks first. */
function fetch_value(Redis $redis, string $key): string
{
    $value = $redis->get($key);
    if ($value === false) {
        $value = str_repeat($key . ' ', intdiv(VALUE_BYTES, strlen($key) + 1));
        $redis->set($key, $value);
    }
    return $value;
}
