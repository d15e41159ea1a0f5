<?php

namespace Journal\Service;

use Journal\Entity\Section;
use Twig\Extension\AbstractExtension;
use Twig\TwigFilter;
use Twig\TwigFunction;

/** What templates need beyond Twig and Symfony. */
final class JournalExtension extends AbstractExtension
{
    private const WORDS_PER_MINUTE = 220;

    public function __construct(private readonly HitCounter $counter)
    {
    }

    public function getFunctions(): array
    {
        return [
            new TwigFunction('hits', fn (): int => $this->counter->hits()),
            new TwigFunction('sections', Section::cases(...)),
        ];
    }

    public function getFilters(): array
    {
        return [
            new TwigFilter('reading_minutes', static fn (string $text): int => max(1, intdiv(str_word_count($text), self::WORDS_PER_MINUTE))),
        ];
    }
}
