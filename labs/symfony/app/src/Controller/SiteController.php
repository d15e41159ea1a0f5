<?php

namespace Journal\Controller;

use Journal\Repository\PostFilter;
use Journal\Repository\PostRepository;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** Pages that belong to no section. */
final class SiteController extends AbstractController
{
    public function __construct(private readonly PostRepository $posts)
    {
    }

    public function front(): Response
    {
        return $this->render('site/front.html.twig', $this->posts->page(new PostFilter()));
    }

    public function about(): Response
    {
        return $this->render('site/about.html.twig');
    }

    public function search(Request $request): Response
    {
        $words = trim($request->query->get('q', ''));

        return $this->render('site/search.html.twig', [
            'words' => $words,
            'posts' => '' === $words ? [] : $this->posts->search($words),
        ]);
    }
}
