<?php

/**
 * Loads classes by one map, as Composer's `--classmap-authoritative` does. bin/classmap writes it.
 *
 * Debian's packages bring one autoloader each, 54 here. PHP asks them in turn, which nobody would put up with in production.
 */
(static function (): void {
    ['classes' => $classes, 'files' => $files] = require \dirname(__DIR__).'/var/classmap.php';

    spl_autoload_register(static function (string $class) use ($classes): void {
        $file = $classes[strtolower($class)] ?? null;
        if (null !== $file) {
            require $file;
        }
    });
    foreach ($files as $file) {
        require_once $file;
    }
})();
