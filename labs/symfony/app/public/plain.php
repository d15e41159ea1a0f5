<?php

// The usual front controller: every request boots the kernel. What the others are compared with.

use Journal\Kernel;
use Symfony\Component\HttpFoundation\Request;

require __DIR__.'/../src/autoload.php';
$kernel = new Kernel('prod', false);

$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
