<?php

namespace Journal\Form;

use Symfony\Component\Form\AbstractType;
use Symfony\Component\Form\Extension\Core\Type\ChoiceType;
use Symfony\Component\Form\Extension\Core\Type\EmailType;
use Symfony\Component\Form\FormBuilderInterface;

/** The small form beside each list. It is sent to the search page, which ignores it: the lab subscribes nobody. */
final class NewsletterType extends AbstractType
{
    public function buildForm(FormBuilderInterface $builder, array $options): void
    {
        $builder
            ->add('email', EmailType::class, ['label' => 'newsletter.email'])
            ->add('frequency', ChoiceType::class, [
                'label' => 'newsletter.frequency',
                'choices' => ['newsletter.daily' => 'daily', 'newsletter.weekly' => 'weekly'],
            ]);
    }
}
