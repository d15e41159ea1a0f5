<?php
// An application whose boot keeps a value of the request: must not be saved.
if (!restore_state()) {
    require __DIR__ . '/application.php';
    $container = boot();
    $kept = $_COOKIE['t'] ?? $_GET['t'] ?? explode(':', $_COOKIE['part'] ?? '')[1] ?? $_SERVER['HTTP_X_TOKEN'] ?? substr($_SERVER['HTTP_AUTHORIZATION'] ?? $_SERVER['PATH_INFO'], 7);
    $container->get(Log::class)->lines[] = "started with $kept";
    unset($kept);
    snapshot_state();
}
echo implode("\n", $container->get(Log::class)->lines);
