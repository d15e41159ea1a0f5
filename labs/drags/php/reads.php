<?php
// Eight times: compute for a millisecond, read a key of Redis. The drag is what that takes longer than the computing.
require __DIR__ . '/lab.php';

$redis = kept_redis();
$took = clock(function () use ($redis): void {
	for ($read = 0; $read < 8; $read++) {
		compute(1_000_000);
		$redis->get('key:' . ($read + 1));
	}
});
echo "\n", max(0, $took - 8_000_000);
