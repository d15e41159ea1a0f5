<?php

namespace Journal\Entity;

use Doctrine\Common\Collections\ArrayCollection;
use Doctrine\Common\Collections\Collection;
use Doctrine\ORM\Mapping as ORM;
use Journal\Repository\PostRepository;

#[ORM\Entity(repositoryClass: PostRepository::class)]
#[ORM\Index(columns: ['section', 'published_at'])]
class Post
{
    #[ORM\Id]
    #[ORM\GeneratedValue]
    #[ORM\Column]
    private ?int $id = null;

    /** @var Collection<int, Tag> */
    #[ORM\ManyToMany(targetEntity: Tag::class)]
    #[ORM\OrderBy(['name' => 'ASC'])]
    private Collection $tags;

    public function __construct(
        #[ORM\Column(length: 20)]
        private Section $section,
        #[ORM\Column(length: 120, unique: true)]
        private string $slug,
        #[ORM\Column(length: 200)]
        private string $title,
        #[ORM\Column(length: 400)]
        private string $summary,
        #[ORM\Column(type: 'text')]
        private string $body,
        #[ORM\Column(name: 'published_at')]
        private \DateTimeImmutable $publishedAt,
        #[ORM\ManyToOne]
        #[ORM\JoinColumn(nullable: false)]
        private Author $author,
        Tag ...$tags,
    ) {
        $this->tags = new ArrayCollection($tags);
    }

    public function getId(): ?int
    {
        return $this->id;
    }

    public function getSection(): Section
    {
        return $this->section;
    }

    public function getSlug(): string
    {
        return $this->slug;
    }

    public function getTitle(): string
    {
        return $this->title;
    }

    public function getSummary(): string
    {
        return $this->summary;
    }

    public function getBody(): string
    {
        return $this->body;
    }

    public function getPublishedAt(): \DateTimeImmutable
    {
        return $this->publishedAt;
    }

    public function getAuthor(): Author
    {
        return $this->author;
    }

    /** @return Collection<int, Tag> */
    public function getTags(): Collection
    {
        return $this->tags;
    }
}
