<?php
// A small boot: loads what the prices need when it is needed.
spl_autoload_register(function (string $class): void {
	require __DIR__ . "/$class.php";
});
