<?php
// Asks the slow server once, in two pieces or in one. A connection that is kept has talked for long enough for the server to
// acknowledge late.
require __DIR__ . '/lab.php';

$server = kept_slow();
$pieces = $_GET['how'] === 'pieces' ? ["PING ", "$_GET[ms]\r\n"] : ["PING $_GET[ms]\r\n"];
$took = clock(function () use ($server, $pieces): void {
	foreach ($pieces as $piece) {
		fwrite($server, $piece);
	}
	fgets($server);
});
echo compute(500_000), "\n", $took;
