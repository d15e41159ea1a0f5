<?php
// Asks Redis: 136 times, as a page of WordPress with an object cache does, once for as many keys, or a dozen different questions.
require __DIR__ . '/lab.php';

$redis = kept_redis();
$how = $_GET['how'];
$took = 0;
if ($how === 'each') {
	$redis->ping();
	$redis->info();
	// The drag is the question that is asked again and again, and not what the page does between two of them. Where the host of the machine or others
	// take the CPU during some, that is the drag's while the page waits for Redis, and not while it has an answer already. From here both look the
	// same: the middle one tells what all take without any of it, their sum what they take with all of it.
	$each = array_map(fn (int $key): int => clock(fn (): mixed => $redis->get("key:$key")), range(1, 134));
	sort($each);
	$took = 134 * $each[67] . ' ' . array_sum($each);
} elseif ($how === 'together') {
	$took = clock(fn (): mixed => $redis->mGet(array_map(fn (int $key): string => "key:$key", range(1, 136))));
} else {
	$took = clock(function () use ($redis): void {
		$redis->get('key:1');
		$redis->mGet(['key:2', 'key:3']);
		$redis->strlen('key:4');
		$redis->exists('key:5');
		$redis->ttl('key:6');
		$redis->hGetAll('hash:1');
		$redis->hLen('hash:1');
		$redis->lRange('list:1', 0, -1);
		$redis->lLen('list:1');
		$redis->sMembers('set:1');
		$redis->zRange('sorted:1', 0, -1);
		$redis->dbSize();
	});
}
echo compute(500_000), "\n", $took;
