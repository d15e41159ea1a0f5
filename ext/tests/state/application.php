<?php
// A small framework: container with lazy services, routes with closures, listeners, templates, a cache that must not grow.
// query: page=404
// query: page=home
// query: page=user/7
// query: page=broken
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    require __DIR__ . '/../fixtures/framework.inc';
    $app = new Framework\Application(['name' => 'Test', 'debug' => false]);
    $app->share('router', fn ($c) => new Framework\Router());
    $app->share('events', fn ($c) => new Framework\Events());
    $app->share('view', fn ($c) => new Framework\View($c['config']));
    $app->share('unused', fn ($c) => throw new LogicException('never made'));
    $app->share('lazy', fn ($c) => (object) ['made for' => $c['config']['name']]);
    $app['router']->add('GET|POST|PUT', 'home', fn ($c) => $c['view']->render('Hello {name}', ['name' => $c['config']['name']]));
    $app['router']->add('GET|POST|PUT', 'user/{id}', function ($c, string $id) {
        static $served = 0;
        return 'user ' . $id . ' served ' . ++$served . ' ' . $c['lazy']->{'made for'};
    });
    $app['router']->add('GET|POST|PUT', 'broken', fn ($c) => $c['view']->nothing());
    $app['events']->on('request', fn ($event) => $event->log[] = 'first', 5);
    $app['events']->on('request', function ($event) use ($app) {
        $event->log[] = 'handled ' . ++$app->handled;
    }, 10);
    $app['events']->on('response', [$app['view'], 'decorate']);
    $app->handle('home', 'GET');
    $app->handled = 0;
    snapshot_state();
}

$response = $app->handle($_GET['page'], $_SERVER['REQUEST_METHOD']);
report([
    'response' => $response,
    'handled' => $app->handled,
    'cache' => $app['view']->cached(),
    'services' => $app->made(),
    'events' => $app['events']->fired,
]);
$app->handle('user/8', 'GET');
$app['events']->on('response', fn () => 'wrecked');
wreck();
