<?php

namespace Journal\Repository;

use Journal\Entity\Section;
use Symfony\Component\Validator\Constraints as Assert;

/** Which posts a page lists. Comes from the address, so it is validated before the database sees it. */
final class PostFilter
{
    public function __construct(
        public readonly ?Section $section = null,
        #[Assert\Range(min: 1, max: 10_000)]
        public readonly int $page = 1,
        #[Assert\Length(max: 40)]
        #[Assert\Regex('/^[a-z-]+$/')]
        public readonly ?string $tag = null,
        #[Assert\Positive]
        public readonly ?int $author = null,
        #[Assert\Range(min: 1990, max: 2100)]
        public readonly ?int $year = null,
    ) {
    }
}
