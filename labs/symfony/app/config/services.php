<?php

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Doctrine\ORM\EntityManagerInterface;
use Doctrine\Persistence\ManagerRegistry;
use Journal\Doctrine\EntityManagerFactory;
use Journal\Doctrine\Registry;
use Journal\Snapshot\Warmup;
use Symfony\Bridge\Doctrine\CacheWarmer\ProxyCacheWarmer;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;

use function Symfony\Component\DependencyInjection\Loader\Configurator\env;
use function Symfony\Component\DependencyInjection\Loader\Configurator\service;

return static function (ContainerConfigurator $container): void {
    // What Symfony advises for production: https://symfony.com/doc/5.4/performance.html
    $container->parameters()
        ->set('container.dumper.inline_factories', true)
        ->set('container.dumper.inline_class_loader', true);

    $services = $container->services()->defaults()->autowire()->autoconfigure();
    $services->load('Journal\\', '../src/')->exclude('../src/{Entity,Kernel.php,autoload.php,packages.php,Snapshot/polyfill.php}');
    $services->get(Warmup::class)->public();

    // Debian has no DoctrineBundle. These are the services that it would define.
    $services->set(Connection::class)
        ->public()
        ->factory([DriverManager::class, 'getConnection'])
        ->args([[
            'driver' => 'pdo_mysql',
            'unix_socket' => env('LAB_DATABASE_SOCKET'),
            'user' => 'lab',
            'password' => env('LAB_DATABASE_PASSWORD'),
            'dbname' => 'journal',
            'charset' => 'utf8mb4',
            // Spares each request the question for the server's version.
            'serverVersion' => '10.11.6-MariaDB',
        ]]);
    $services->set(EntityManagerInterface::class)
        ->public()
        ->factory([EntityManagerFactory::class, 'create'])
        ->args([
            service(Connection::class),
            service('cache.doctrine.metadata'),
            service('cache.doctrine.query'),
            '%kernel.project_dir%/src/Entity',
            '%kernel.cache_dir%/doctrine',
        ]);
    $services->alias(ManagerRegistry::class, Registry::class)->public();
    $services->set(ProxyCacheWarmer::class);
};
