<?php

namespace Journal\Service;

use Symfony\Component\EventDispatcher\Attribute\AsEventListener;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Contracts\Service\ResetInterface;

/**
 * Counts requests in an ordinary service. Every page shows the number, and it must be 1: more means that a request saw what
 * an earlier one left behind.
 */
final class HitCounter implements ResetInterface
{
    private int $hits = 0;

    #[AsEventListener]
    public function count(RequestEvent $event): void
    {
        if ($event->isMainRequest()) {
            ++$this->hits;
        }
    }

    public function hits(): int
    {
        return $this->hits;
    }

    public function reset(): void
    {
        $this->hits = 0;
    }
}
