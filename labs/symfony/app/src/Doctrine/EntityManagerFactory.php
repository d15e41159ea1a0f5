<?php

namespace Journal\Doctrine;

use Doctrine\DBAL\Connection;
use Doctrine\ORM\Configuration;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\Mapping\Driver\AttributeDriver;
use Doctrine\ORM\Mapping\UnderscoreNamingStrategy;
use Psr\Cache\CacheItemPoolInterface;

/** Puts together what DoctrineBundle would: mapping by attributes, caches, proxies that are written by the cache warmer. */
final class EntityManagerFactory
{
    public static function create(
        Connection $connection,
        CacheItemPoolInterface $metadata,
        CacheItemPoolInterface $queries,
        string $entities,
        string $proxies,
    ): EntityManager {
        $configuration = new Configuration();
        $configuration->setMetadataDriverImpl(new AttributeDriver([$entities]));
        $configuration->setMetadataCache($metadata);
        $configuration->setQueryCache($queries);
        $configuration->setNamingStrategy(new UnderscoreNamingStrategy(CASE_LOWER, true));
        $configuration->setProxyDir($proxies);
        $configuration->setProxyNamespace('Journal\Proxies');
        $configuration->setAutoGenerateProxyClasses(false);

        return EntityManager::create($connection, $configuration);
    }
}
