<?php

namespace Journal\Service;

/** The words that the editors explain. They are part of the program, not of the database. */
final class Glossary
{
    public const TERMS_PER_PAGE = 10;
    private const TERMS = 60;

    /** @var list<Term> */
    private readonly array $terms;

    public function __construct()
    {
        $terms = [];
        for ($i = 1; $i <= self::TERMS; ++$i) {
            $text = str_repeat("Term $i is what editors say when they mean something else. ", 6);
            $terms[] = new Term("Term number $i", $text, ['editing', 0 === $i % 2 ? 'print' : 'web', "group-$i"]);
        }
        $this->terms = $terms;
    }

    /** @return list<Term> ten of them, fewer on the last page, none behind it */
    public function page(int $page): array
    {
        return \array_slice($this->terms, ($page - 1) * self::TERMS_PER_PAGE, self::TERMS_PER_PAGE);
    }

    public function pages(): int
    {
        return (int) ceil(self::TERMS / self::TERMS_PER_PAGE);
    }
}
