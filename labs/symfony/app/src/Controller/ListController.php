<?php

namespace Journal\Controller;

use Journal\Entity\Section;
use Journal\Form\NewsletterType;
use Journal\Repository\PostFilter;
use Journal\Repository\PostRepository;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\Validator\Validator\ValidatorInterface;

/** Pages of ten posts: of a section, and there of a tag, an author, a year. */
final class ListController extends AbstractController
{
    public function __construct(
        private readonly PostRepository $posts,
        private readonly ValidatorInterface $validator,
    ) {
    }

    public function home(string $section): Response
    {
        return $this->list(new PostFilter(Section::from($section)), 'home');
    }

    public function page(string $section, int $page): Response
    {
        return $this->list(new PostFilter(Section::from($section), $page), 'section');
    }

    public function tag(string $section, string $tag, int $page): Response
    {
        return $this->list(new PostFilter(Section::from($section), $page, tag: $tag), 'tag');
    }

    public function author(string $section, int $author, int $page): Response
    {
        return $this->list(new PostFilter(Section::from($section), $page, author: $author), 'author');
    }

    public function archive(string $section, int $year, int $page): Response
    {
        return $this->list(new PostFilter(Section::from($section), $page, year: $year), 'archive');
    }

    private function list(PostFilter $filter, string $kind): Response
    {
        $violations = $this->validator->validate($filter);
        if (\count($violations) > 0) {
            throw $this->createNotFoundException((string) $violations);
        }
        ['posts' => $posts, 'pages' => $pages] = $this->posts->page($filter);
        if ([] === $posts) {
            throw $this->createNotFoundException('No posts here.');
        }
        $newsletter = $this->createForm(NewsletterType::class, null, [
            'action' => $this->generateUrl('search'),
            'method' => 'GET',
        ]);

        return $this->renderForm('post/list.html.twig', [
            'filter' => $filter,
            'kind' => $kind,
            'posts' => $posts,
            'pages' => $pages,
            'newsletter' => $newsletter,
        ]);
    }
}
