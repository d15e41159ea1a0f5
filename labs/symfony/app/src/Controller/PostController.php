<?php

namespace Journal\Controller;

use Journal\Entity\Post;
use Journal\Entity\Section;
use Journal\Form\Comment;
use Journal\Form\CommentType;
use Journal\Repository\PostRepository;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** One post, and the form for a comment on it. */
final class PostController extends AbstractController
{
    public function __construct(private readonly PostRepository $posts)
    {
    }

    public function show(string $section, string $slug): Response
    {
        return $this->render('post/show.html.twig', ['post' => $this->find($section, $slug)]);
    }

    public function comment(string $section, string $slug, Request $request): Response
    {
        $post = $this->find($section, $slug);
        $comment = new Comment();
        $form = $this->createForm(CommentType::class, $comment);
        $form->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            // Comments are not stored: the pages are to be the same before and after.
            return $this->render('post/thanks.html.twig', ['post' => $post, 'comment' => $comment]);
        }

        return $this->renderForm('post/comment.html.twig', ['post' => $post, 'form' => $form]);
    }

    private function find(string $section, string $slug): Post
    {
        return $this->posts->findBySlug(Section::from($section), $slug)
            ?? throw $this->createNotFoundException("There is no post $slug.");
    }
}
