<?php
// Asks the slow server once. The drag is said by the load: how long a request took more than this.
require __DIR__ . '/lab.php';

$server = kept_slow();
$took = clock(function () use ($server): void {
	fwrite($server, "PING $_GET[ms]\r\n");
	fgets($server);
});
echo compute(500_000), "\n", $took;
