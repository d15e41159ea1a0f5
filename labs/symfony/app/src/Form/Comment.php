<?php

namespace Journal\Form;

use Symfony\Component\Validator\Constraints as Assert;

/** What a visitor types into the comment form. */
final class Comment
{
    #[Assert\NotBlank]
    #[Assert\Length(min: 2, max: 60)]
    public ?string $name = null;

    #[Assert\NotBlank]
    #[Assert\Email]
    public ?string $email = null;

    #[Assert\NotBlank]
    #[Assert\Length(min: 10, max: 2_000)]
    public ?string $text = null;
}
