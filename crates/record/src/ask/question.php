<?php
// What this PHP says of itself, for `slip doctor --ask`. It changes nothing and tells no secret, and it is gone when it has answered.

$settings = [
    'memory_limit', 'realpath_cache_size', 'realpath_cache_ttl', 'session.save_handler', 'xdebug.mode', 'pcov.enabled',
    'opcache.enable', 'opcache.memory_consumption', 'opcache.interned_strings_buffer', 'opcache.max_accelerated_files',
    'opcache.max_wasted_percentage', 'opcache.validate_timestamps', 'opcache.revalidate_freq', 'opcache.file_cache_only',
    'opcache.huge_code_pages', 'opcache.jit', 'opcache.jit_buffer_size', 'opcache.record_warnings',
    'mysqli.allow_persistent', 'mysqli.max_persistent', 'pgsql.allow_persistent', 'pgsql.max_persistent',
    'redis.pconnect.pooling_enabled', 'redis.pconnect.connection_limit',
];
// Of these only whether there is anything: they are paths.
$paths = ['open_basedir', 'opcache.preload', 'opcache.file_cache', 'opcache.restrict_api', 'auto_prepend_file'];

$answer = ['version' => PHP_VERSION, 'time_s' => time(), 'extensions' => get_loaded_extensions(), 'settings' => [],
    'configured' => [], 'unanswered' => []];
foreach ([...$settings, ...$paths] as $name) {
    $value = ini_get($name);
    if ($value !== false) {
        $answer['settings'][$name] = in_array($name, $paths, true) ? ($value === '' ? '' : '1') : (string) $value;
    }
    if (get_cfg_var($name) !== false) {
        $answer['configured'][] = $name;
    }
}

// A function that `disable_functions` names is not there.
$ask = function (string $function, ...$arguments) use (&$answer) {
    if (!function_exists($function)) {
        $answer['unanswered'][] = "$function is not there or disabled";
        return null;
    }
    return @$function(...$arguments);
};
$count = fn (mixed $from, string $name): int => is_array($from) ? max(0, (int) ($from[$name] ?? 0)) : 0;
$is = fn (mixed $from, string $name): bool => is_array($from) && (bool) ($from[$name] ?? false);

$preload = function (array $statistics, int $start) use ($count): array {
    $newer = $missing = 0;
    $examples = [];
    foreach (array_slice($statistics['scripts'] ?? [], 0, 50000) as $script) {
        $changed = @filemtime($script);
        if ($changed === false) {
            $missing++;
        } elseif ($changed > $start) {
            $newer++;
        } else {
            continue;
        }
        if (count($examples) < 3) {
            $examples[] = $script;
        }
    }
    clearstatcache();
    return ['scripts' => count($statistics['scripts'] ?? []), 'memory' => $count($statistics, 'memory_consumption'),
        'newer' => $newer, 'missing' => $missing, 'examples' => $examples];
};

if (extension_loaded('Zend OPcache')) {
    $status = ini_get('opcache.restrict_api') ? null : $ask('opcache_get_status', false);
    if (ini_get('opcache.restrict_api')) {
        $answer['unanswered'][] = 'opcache.restrict_api forbids to ask opcache';
    }
    if (is_array($status)) {
        $memory = $status['memory_usage'] ?? [];
        $strings = $status['interned_strings_usage'] ?? [];
        $done = $status['opcache_statistics'] ?? [];
        $jit = $status['jit'] ?? null;
        $answer['opcache'] = [
            'enabled' => $is($status, 'opcache_enabled'), 'only_files' => $is($status, 'file_cache_only'),
            'cache_full' => $is($status, 'cache_full'), 'restart_pending' => $is($status, 'restart_pending'),
            'restart_in_progress' => $is($status, 'restart_in_progress'),
            'used' => $count($memory, 'used_memory'), 'free' => $count($memory, 'free_memory'),
            'wasted' => $count($memory, 'wasted_memory'),
            'strings_size' => $count($strings, 'buffer_size'), 'strings_used' => $count($strings, 'used_memory'),
            'strings_free' => $count($strings, 'free_memory'),
            'scripts' => $count($done, 'num_cached_scripts'), 'keys' => $count($done, 'num_cached_keys'),
            'max_keys' => $count($done, 'max_cached_keys'), 'hits' => $count($done, 'hits'),
            'misses' => $count($done, 'misses'), 'blacklist_misses' => $count($done, 'blacklist_misses'),
            'start_s' => $count($done, 'start_time'), 'last_restart_s' => $count($done, 'last_restart_time'),
            'oom_restarts' => $count($done, 'oom_restarts'), 'hash_restarts' => $count($done, 'hash_restarts'),
            'manual_restarts' => $count($done, 'manual_restarts'),
            'jit' => is_array($jit) ? ['enabled' => $is($jit, 'enabled'), 'on' => $is($jit, 'on'),
                'buffer_size' => $count($jit, 'buffer_size'), 'buffer_free' => $count($jit, 'buffer_free')] : null,
            'preload' => is_array($status['preload_statistics'] ?? null)
                ? $preload($status['preload_statistics'], $count($done, 'start_time')) : null,
        ];
    }
}

$answer['realpath_bytes'] = max(0, (int) $ask('realpath_cache_size'));

// The path has passwords: only whether it asks for a connection that is kept.
$answer['keeps_sessions_by_persistent_redis'] = ini_get('session.save_handler') === 'redis'
    && preg_match('/[?&]persistent=[1-9]/', (string) ini_get('session.save_path')) === 1;

$status = $ask('fpm_get_status');
if (is_array($status)) {
    $answer['pool'] = (string) ($status['pool'] ?? '');
    $answer['manager'] = ['kind' => (string) ($status['process-manager'] ?? ''),
        'listen_queue' => $count($status, 'listen-queue'), 'max_listen_queue' => $count($status, 'max-listen-queue'),
        'idle' => $count($status, 'idle-processes'), 'active' => $count($status, 'active-processes'),
        'max_active' => $count($status, 'max-active-processes'),
        'max_children_reached' => $count($status, 'max-children-reached'),
        'slow_requests' => $count($status, 'slow-requests')];
}

// Whatever is prepended or appended to each script may print something, too.
echo "\nslip-answer ", json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR), "\n";
