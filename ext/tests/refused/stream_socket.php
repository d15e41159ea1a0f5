<?php
// needs: standard
// expect: stream
// expect: $app->services['socket']
if (restore_state()) {
    exit('restored');
}
// The runner listens there, and never answers.
$port = (int) file_get_contents(sys_get_temp_dir() . '/port');
$app = new stdClass();
$app->services = ['fine' => fopen(__FILE__, 'r'), 'socket' => stream_socket_client("tcp://127.0.0.1:$port")];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
