<?php

namespace Journal\Controller;

use Journal\Entity\Section;
use Journal\Repository\PostFilter;
use Journal\Repository\PostRepository;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Response;

/** The newest posts of a section as an Atom feed. */
final class FeedController extends AbstractController
{
    public function __invoke(string $section, PostRepository $posts): Response
    {
        $section = Section::from($section);
        $response = new Response('', Response::HTTP_OK, ['Content-Type' => 'application/atom+xml; charset=UTF-8']);

        return $this->render('post/feed.xml.twig', [
            'section' => $section,
            'posts' => $posts->page(new PostFilter($section))['posts'],
        ], $response);
    }
}
