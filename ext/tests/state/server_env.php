<?php
// Keys that the boot adds to $_SERVER and $_ENV, as loaders of .env files do: kept, the request's own are not.
// query: change=0
// query: change=1
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    foreach (['APP_ENV' => 'test', 'APP_LONG' => str_repeat('configured ', 50), 'APP_NUMBER' => '12345678'] as $name => $value) {
        $_SERVER[$name] = $_ENV[$name] = $value;
        putenv("$name=$value");
    }
    $_ENV['APP_LIST'] = ['a' => [1, 2]];
    $_SERVER['APP_OBJECT'] = new ArrayObject(['shared']);
    $object = $_SERVER['APP_OBJECT'];
    function observe_server(): array
    {
        $request = ['REQUEST_METHOD', 'QUERY_STRING', 'HTTP_COOKIE', 'HTTP_X_TRACE', 'CONTENT_TYPE', 'CONTENT_LENGTH', 'REQUEST_URI'];
        return [
            array_intersect_key($_SERVER, array_flip($request)),
            array_filter($_SERVER, fn ($name) => str_starts_with($name, 'APP_') && $name !== 'APP_OBJECT', ARRAY_FILTER_USE_KEY),
            $_ENV, getenv('APP_ENV'), getenv('APP_LONG'), abs($_SERVER['REQUEST_TIME_FLOAT'] - microtime(true)) < 60,
        ];
    }
    snapshot_state();
}

report([
    'now' => observe_server(),
    'object' => [$_SERVER['APP_OBJECT'] === $object, count($object)],
]);

$_SERVER['APP_ENV'] = 'wrecked';
$_SERVER['APP_LATER'] = 'wrecked';
$_SERVER['REQUEST_METHOD'] = 'WRECKED';
unset($_SERVER['APP_NUMBER'], $_ENV['APP_LONG']);
$_ENV['APP_LIST']['a'][] = 3;
putenv('APP_ENV=wrecked');
$object[] = 'wrecked';
