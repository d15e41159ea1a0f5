<?php

// What the extension says of this worker, as JSON; null where it is not loaded. For this machine only.

if ('127.0.0.1' !== $_SERVER['REMOTE_ADDR']) {
    http_response_code(403);
    exit;
}
header('Content-Type: application/json');
echo json_encode(
    function_exists('Slipstream\status') ? Slipstream\status() : null,
    JSON_PRETTY_PRINT | JSON_THROW_ON_ERROR,
), "\n";
