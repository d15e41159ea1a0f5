<?php
// Reads three keys of Redis, and says how long that took.
require __DIR__ . '/lab.php';

$redis = kept_redis();
$took = clock(function () use ($redis): void {
	for ($read = 0; $read < 3; $read++) {
		$redis->get('key:' . ($read + 1));
	}
});
echo compute(500_000), "\n", $took;
