<?php
// The boot of an application that builds all of its services before it looks at the request.
return (function (): array {
	$services = [];
	for ($number = 0; $number < 300; $number++) {
		$class = "Service$number";
		require_once __DIR__ . "/classes/$class.php";
		$services[$number] = $number === 0 ? new $class() : new $class($services[$number - 1], $services[intdiv($number, 2)]);
	}
	return $services;
})();
