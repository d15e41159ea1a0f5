<?php

/**
 * Loads classes by one map, as Composer's `--classmap-authoritative` does; bin/classmap writes it. With LAB_AUTOLOAD=packages
 * in the environment as Debian's packages do it by themselves: each brings an autoloader, and PHP asks them in turn, 54 here.
 */
(static function (): void {
    if ('packages' === getenv('LAB_AUTOLOAD')) {
        foreach (require __DIR__.'/packages.php' as $package) {
            require_once "/usr/share/php/$package/autoload.php";
        }
        spl_autoload_register(static function (string $class): void {
            if (str_starts_with($class, 'Journal\\')) {
                require __DIR__.'/'.strtr(substr($class, strlen('Journal\\')), '\\', '/').'.php';
            }
        });

        return;
    }
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
