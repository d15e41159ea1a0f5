<?php

namespace Journal\Controller;

use Journal\Repository\PostRepository;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Response;

/** For editors only; the firewall sees to that. */
final class AdminController extends AbstractController
{
    public function __invoke(PostRepository $posts): Response
    {
        return $this->render('site/admin.html.twig', ['count' => $posts->count([])]);
    }
}
