<?php

// Takes the snapshot when the kernel has answered a made-up request for each kind of page and made all public services.

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
        ->visit('/')
        ->visit('/about')
        ->visit('/glossary/1')
        ->visit('/search?q=warm')
        ->visit('/admin', ['PHP_AUTH_USER' => 'editor', 'PHP_AUTH_PW' => 'editor'])
        ->visit('/news')
        ->visit('/news/page/1')
        ->visit('/news/author/1')
        ->visit('/news/feed.xml')
        ->visit('/news/post/news-1')
        ->visit('/news/post/news-1/comment')
        ->initializeServices()
        ->settle();
    snapshot_state();
}

$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
