<?php
// Uses what is configured: opcache, its compiler, what was loaded before, the cache of paths, connections that are kept.
require __DIR__ . '/lab.php';

$redis = kept_redis();
$redis->get('key:1');
if (ini_get('session.save_handler') === 'redis') {
	session_id('lab');
	session_start();
	$_SESSION['number'] = request_number();
	session_write_close();
}
for ($number = 0; $number < 20; $number++) {
	realpath(__DIR__ . "/templates/block-$number.html");
}
echo function_exists('greeting') ? greeting() : 'no greeting', compute(3_000_000), "\n0";
