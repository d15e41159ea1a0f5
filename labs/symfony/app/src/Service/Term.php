<?php

namespace Journal\Service;

/** One word of the glossary. */
final class Term
{
    /** @param list<string> $groups */
    public function __construct(
        public readonly string $name,
        public readonly string $text,
        public readonly array $groups,
    ) {
    }
}
