<?php
// Builds the same 300 services in each request, and uses one.
require __DIR__ . '/lab.php';

$services = null;
$took = clock(function () use (&$services): void {
	$services = require __DIR__ . '/autoload.php';
});
echo $services[request_number() % 300]->match('/area-7/page-7') ?? 'no page', compute(500_000), "\n", $took;
