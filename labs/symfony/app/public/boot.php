<?php

// Takes the snapshot when the kernel has booted. If it is refused, the exception is to be seen: a lab hides nothing.

use Journal\Kernel;
use Symfony\Component\HttpFoundation\Request;

if (!function_exists('restore_state')) {
    require __DIR__.'/../src/Snapshot/polyfill.php';
}

if (!restore_state()) {
    require __DIR__.'/../src/autoload.php';
    $kernel = new Kernel('prod', false);
    $kernel->boot();
    snapshot_state();
}

$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
