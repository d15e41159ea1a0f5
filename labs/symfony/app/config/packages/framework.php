<?php

use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;

return static function (ContainerConfigurator $container): void {
    $container->extension('framework', [
        'secret' => 'only-signs-urls-of-a-lab',
        'default_locale' => 'en',
        'enabled_locales' => ['en', 'de'],
        'set_locale_from_accept_language' => true,
        'http_method_override' => false,
        'router' => ['utf8' => true],
        'translator' => ['default_path' => '%kernel.project_dir%/translations', 'fallbacks' => ['en']],
        'form' => true,
        // Visitors have no session, as on any public page that is to be cacheable, so there is nothing to tie a token to.
        'csrf_protection' => false,
        'validation' => ['enable_annotations' => true],
        'property_access' => true,
        'property_info' => true,
        'assets' => true,
        'php_errors' => ['log' => true],
        'cache' => [
            'pools' => [
                // cache.system keeps its items in PHP files, which opcache holds: the best there is without APCu.
                'cache.doctrine.metadata' => ['adapter' => 'cache.system'],
                'cache.doctrine.query' => ['adapter' => 'cache.system'],
            ],
        ],
    ]);
};
