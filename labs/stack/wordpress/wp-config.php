<?php
/**
 * WordPress settings of the lab. Everything that differs between two stacks comes from the pool's environment.
 */

define('DB_NAME', 'wordpress');
define('DB_USER', 'lab');
define('DB_PASSWORD', (string) getenv('LAB_DATABASE_PASSWORD'));
define('DB_HOST', 'localhost:' . getenv('LAB_DATABASE_SOCKET'));
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
$table_prefix = 'wp_';

// The stack's port is chosen when it starts, so the address is the one the visitor used and not one from the database.
$lab_address = 'http://' . ($_SERVER['HTTP_HOST'] ?? '127.0.0.1:' . getenv('LAB_HTTP_PORT'));
define('WP_HOME', $lab_address);
define('WP_SITEURL', $lab_address);

// No request may do more than it says: no cron on the side, no updates, no calls to other hosts.
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('DISALLOW_FILE_MODS', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('WP_DEBUG', false);

// Derived from the database's password, which is random per stack: sessions of one are worthless in another.
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $lab_kind) {
    define("{$lab_kind}_KEY", hash('sha256', "$lab_kind key " . DB_PASSWORD));
    define("{$lab_kind}_SALT", hash('sha256', "$lab_kind salt " . DB_PASSWORD));
}
unset($lab_address, $lab_kind);

if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
