<?php
// Sessions that a request starts after the state is back, with settings and a save handler of the boot.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    ini_set('session.use_strict_mode', '0');
    ini_set('session.use_cookies', '0');
    ini_set('session.cache_limiter', 'private');
    ini_set('session.save_path', dirname(scratch('x')));
    snapshot_state();
}

$before = [session_status(), isset($_SESSION), session_id()];
session_id('session-' . strtolower($_SERVER['REQUEST_METHOD']));
session_start();
$found = $_SESSION;
$_SESSION = ['query' => $_GET['q'] ?? null];
session_write_close();
session_start(['read_and_close' => true]);
$written = $_SESSION;
session_start();
session_destroy();
report(['before' => $before, 'found' => $found, 'written' => $written, 'status' => session_status()]);
