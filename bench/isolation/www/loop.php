<?php
/**
 * The control: a worker that keeps its state. Boots once and then handles requests, a line of JSON each, as the worker modes
 * of application servers do.
 */

require __DIR__ . '/application.php';
$container = boot();
while (($line = fgets(STDIN)) !== false) {
    $request = json_decode($line, true);
    [$_GET, $_POST, $_COOKIE, $_FILES] = [$request['get'], [], $request['cookie'], []];
    unset($_GET['k'], $_COOKIE['SESSION']);
    $_SERVER = $request['server'] + $_SERVER;
    $level = ob_get_level();
    ob_start();
    try {
        handle($container);
    } catch (Throwable) {
        // The next request comes all the same.
    }
    while (ob_get_level() > $level + 1) {
        ob_end_flush();
    }
    // Its own secret cannot come by a header here.
    fwrite(STDOUT, json_encode(['body' => ob_get_clean()]) . "\n");
}
