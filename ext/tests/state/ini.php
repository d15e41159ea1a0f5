<?php
// Settings changed by ini_set and its relatives; ini_restore; the value of the configuration underneath.
// ini: user_agent=from the configuration
// ini: highlight.string=#123456
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    ini_set('precision', '5');
    ini_set('serialize_precision', '7');
    ini_set('memory_limit', '333M');
    ini_set('user_agent', 'set in boot');
    ini_set('default_charset', 'ISO-8859-1');
    ini_set('arg_separator.output', ';');
    ini_set('pcre.backtrack_limit', '54321');
    ini_set('highlight.string', '#654321');
    ini_restore('highlight.string');
    ini_set('include_path', __DIR__ . '/../fixtures' . PATH_SEPARATOR . get_include_path());
    ini_set('session.name', 'OWN_SESSION');
    ini_set('date.timezone', 'Asia/Kathmandu');
    ini_set('zend.enable_gc', '0');
    ini_set('unserialize_callback_func', 'my_callback');
    ini_set('max_execution_time', '77');
    set_time_limit(66);
    ignore_user_abort(true);
    error_reporting(E_ALL & ~E_NOTICE);
    $old = ini_set('docref_root', '/manual/');
    $details = ini_get_all('core', false);
    snapshot_state();
}

$names = [
    'precision', 'serialize_precision', 'memory_limit', 'user_agent', 'default_charset', 'arg_separator.output',
    'pcre.backtrack_limit', 'highlight.string', 'session.name', 'date.timezone', 'unserialize_callback_func', 'max_execution_time',
    'docref_root', 'error_reporting', 'ignore_user_abort', 'short_open_tag', 'zend.enable_gc',
];
$changed = array_filter(ini_get_all(), fn ($entry) => $entry['global_value'] !== $entry['local_value']);
unset($changed['cli_server.color']);
ini_restore('user_agent');
report([
    'values' => array_combine($names, array_map('ini_get', $names)),
    'changed' => array_keys($changed),
    'restored' => ini_get('user_agent'),
    'effects' => [
        (string) (1 / 3), var_export(1 / 3, true), http_build_query(['a' => 1, 'b' => 2]), ignore_user_abort(), error_reporting(), gc_enabled(),
        basename((string) stream_resolve_include_path('once.inc')), (new DateTime('2024-01-01'))->getTimezone()->getName(),
    ],
    'kept' => [$old, count($details) > 50],
]);

ini_set('precision', '10');
ini_set('memory_limit', '444M');
ini_set('arg_separator.output', '#');
ini_set('default_socket_timeout', '3');
ini_set('error_prepend_string', 'wrecked');
ini_set('error_prepend_string', '');
ini_restore('serialize_precision');
ini_set('highlight.string', '#ffffff');
set_include_path('/wrecked');
set_time_limit(50);
ignore_user_abort(false);
error_reporting(0);
gc_enable();
wreck();
