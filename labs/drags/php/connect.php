<?php
// Reads four keys of Redis: by a connection for all requests of a worker, for this request, for each command, or by one that is to be
// kept and is not.
require __DIR__ . '/lab.php';

$how = $_GET['how'];
$took = 0;
$redis = null;
for ($read = 0; $read < 4; $read++) {
	if ($redis === null || $how === 'command') {
		// What ends the connection before is not of the next.
		$redis = null;
		$begin = hrtime(true);
		$redis = in_array($how, ['kept', 'closed'], true) ? kept_redis() : new_redis();
		$took += hrtime(true) - $begin;
	}
	$redis->get('key:' . ($read + 1));
}
if ($how === 'closed') {
	// Closes it for good, also one that was opened with pconnect().
	$redis->close();
}
echo compute(500_000), "\n", $took;
