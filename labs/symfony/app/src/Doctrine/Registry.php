<?php

namespace Journal\Doctrine;

use Doctrine\DBAL\Connection;
use Doctrine\ORM\EntityManagerInterface;
use Doctrine\ORM\Proxy\Proxy;
use Symfony\Bridge\Doctrine\ManagerRegistry;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Contracts\Service\ResetInterface;

/** The one connection and the one entity manager, for everything that asks Symfony's Doctrine bridge for them. */
final class Registry extends ManagerRegistry implements ResetInterface
{
    public function __construct(ContainerInterface $container)
    {
        $this->container = $container;
        parent::__construct(
            'orm',
            ['default' => Connection::class],
            ['default' => EntityManagerInterface::class],
            'default',
            'default',
            Proxy::class,
        );
    }

    /** Forgets all entities between two requests of one process, as DoctrineBundle does. */
    public function reset(): void
    {
        if ($this->container->initialized(EntityManagerInterface::class)) {
            $this->getManager()->clear();
        }
    }
}
