<?php

namespace Journal\Controller;

use Journal\Form\NewsletterType;
use Journal\Repository\PostFilter;
use Journal\Service\Glossary;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\Validator\Validator\ValidatorInterface;

/** Ten terms on a page, with the form of the lists: a page that does all that they do but ask the database. */
final class GlossaryController extends AbstractController
{
    public function __construct(private readonly Glossary $glossary, private readonly ValidatorInterface $validator)
    {
    }

    public function __invoke(int $page): Response
    {
        $violations = $this->validator->validate(new PostFilter(page: $page));
        $terms = $this->glossary->page($page);
        if (\count($violations) > 0 || [] === $terms) {
            throw $this->createNotFoundException('No terms here.');
        }
        $newsletter = $this->createForm(NewsletterType::class, null, [
            'action' => $this->generateUrl('search'),
            'method' => 'GET',
        ]);

        return $this->render('glossary/page.html.twig', [
            'terms' => $terms,
            'page' => $page,
            'pages' => $this->glossary->pages(),
            'newsletter' => $newsletter->createView(),
        ]);
    }
}
