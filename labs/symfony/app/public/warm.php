<?php

// Takes the snapshot when the kernel has answered one made-up request for the kind of page that is asked for most.

use Journal\Kernel;
use Journal\Snapshot\Warmup;
use Symfony\Component\HttpFoundation\Request;

if (!function_exists('restore_state')) {
    require __DIR__.'/../src/Snapshot/polyfill.php';
}

if (!restore_state()) {
    require __DIR__.'/../src/autoload.php';
    $kernel = new Kernel('prod', false);
    $kernel->boot();
    $kernel->getContainer()->get(Warmup::class)
        ->visit('/glossary/1')
        ->settle();
    snapshot_state();
}

$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
