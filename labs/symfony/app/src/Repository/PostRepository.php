<?php

namespace Journal\Repository;

use Doctrine\ORM\EntityManagerInterface;
use Doctrine\ORM\EntityRepository;
use Doctrine\ORM\QueryBuilder;
use Journal\Entity\Post;
use Journal\Entity\Section;

/** @extends EntityRepository<Post> */
final class PostRepository extends EntityRepository
{
    public const PER_PAGE = 10;

    public function __construct(EntityManagerInterface $manager)
    {
        parent::__construct($manager, $manager->getClassMetadata(Post::class));
    }

    /**
     * One page of posts, newest first, with their authors and tags: three queries, whatever the number of posts.
     *
     * @return array{posts: list<Post>, pages: int}
     */
    public function page(PostFilter $filter): array
    {
        $posts = $this->filtered($filter)
            ->addSelect('author')
            ->orderBy('post.publishedAt', 'DESC')
            ->addOrderBy('post.id', 'DESC')
            ->setFirstResult(($filter->page - 1) * self::PER_PAGE)
            ->setMaxResults(self::PER_PAGE)
            ->getQuery()
            ->getResult();
        $this->loadTags($posts);
        $count = $this->filtered($filter)->select('COUNT(post.id)')->getQuery()->getSingleScalarResult();

        return ['posts' => $posts, 'pages' => max(1, (int) ceil($count / self::PER_PAGE))];
    }

    public function findBySlug(Section $section, string $slug): ?Post
    {
        return $this->createQueryBuilder('post')
            ->addSelect('author', 'tag')
            ->join('post.author', 'author')
            ->leftJoin('post.tags', 'tag')
            ->where('post.section = :section AND post.slug = :slug')
            ->setParameter('section', $section)
            ->setParameter('slug', $slug)
            ->getQuery()
            ->getOneOrNullResult();
    }

    /** @return list<Post> */
    public function search(string $words): array
    {
        return $this->createQueryBuilder('post')
            ->addSelect('author')
            ->join('post.author', 'author')
            ->where('post.title LIKE :words')
            ->setParameter('words', '%'.addcslashes($words, '%_').'%')
            ->orderBy('post.publishedAt', 'DESC')
            ->addOrderBy('post.id', 'DESC')
            ->setMaxResults(self::PER_PAGE)
            ->getQuery()
            ->getResult();
    }

    private function filtered(PostFilter $filter): QueryBuilder
    {
        $query = $this->createQueryBuilder('post')->join('post.author', 'author');
        if (null !== $filter->section) {
            $query->andWhere('post.section = :section')->setParameter('section', $filter->section);
        }
        if (null !== $filter->author) {
            $query->andWhere('author.id = :author')->setParameter('author', $filter->author);
        }
        if (null !== $filter->tag) {
            $query->join('post.tags', 'chosen')->andWhere('chosen.name = :tag')->setParameter('tag', $filter->tag);
        }
        if (null !== $filter->year) {
            $query->andWhere('post.publishedAt >= :from AND post.publishedAt < :to')
                ->setParameter('from', new \DateTimeImmutable("$filter->year-01-01"))
                ->setParameter('to', new \DateTimeImmutable(($filter->year + 1).'-01-01'));
        }

        return $query;
    }

    /**
     * Fills the tags of all posts by one query: Doctrine puts what it reads into the objects that it knows already.
     *
     * @param list<Post> $posts
     */
    private function loadTags(array $posts): void
    {
        $this->createQueryBuilder('post')
            ->addSelect('tag')
            ->leftJoin('post.tags', 'tag')
            ->where('post IN (:posts)')
            ->setParameter('posts', $posts)
            ->orderBy('tag.name')
            ->getQuery()
            ->getResult();
    }
}
