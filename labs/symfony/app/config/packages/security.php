<?php

use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\Security\Core\User\InMemoryUser;

return static function (ContainerConfigurator $container): void {
    $container->extension('security', [
        'enable_authenticator_manager' => true,
        // Cost 4: the page behind the firewall is to measure Symfony, not bcrypt.
        'password_hashers' => [InMemoryUser::class => ['algorithm' => 'bcrypt', 'cost' => 4]],
        'providers' => [
            'editors' => [
                'memory' => [
                    'users' => [
                        // The password is "editor".
                        'editor' => [
                            'password' => '$2y$04$NnhoRG9cD3s6duWPOk2RquNt3L2T9HD2g4jl/bZoKEoDgB7cuuM1C',
                            'roles' => ['ROLE_EDITOR'],
                        ],
                    ],
                ],
            ],
        ],
        'firewalls' => [
            'main' => [
                'lazy' => true,
                'stateless' => true,
                'provider' => 'editors',
                'http_basic' => ['realm' => 'Journal'],
            ],
        ],
        'access_control' => [
            ['path' => '^/admin', 'roles' => 'ROLE_EDITOR'],
        ],
    ]);
};
