<?php
// needs: redis
// expect: Redis
// expect: $app->services['cache']
if (restore_state()) {
    exit('restored');
}
// The runner listens there, and never answers.
$port = (int) file_get_contents(sys_get_temp_dir() . '/port');
$app = new stdClass();
$app->services = ['fine' => fopen(__FILE__, 'r'), 'cache' => (fn ($r) => $r->connect('127.0.0.1', $port) ? $r : null)(new Redis())];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
