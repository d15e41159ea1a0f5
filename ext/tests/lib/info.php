<?php
/** Tells the runner what the PHP under test is. */
echo json_encode([
    'version' => PHP_VERSION_ID,
    'extensions' => array_map('strtolower', get_loaded_extensions()),
    'installed' => array_map(fn ($file) => basename($file, '.so'), glob(PHP_EXTENSION_DIR . '/*.so')),
    'opcache' => function_exists('opcache_get_status') && is_array(opcache_get_status(false)),
    'status' => function_exists('Slipstream\status') ? Slipstream\status() : null,
]), "\n";
