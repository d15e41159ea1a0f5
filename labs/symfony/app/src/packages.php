<?php

// Debian's packages that the application asks for; they load what they need themselves.
return [
    'Symfony/Bundle/FrameworkBundle', 'Symfony/Bundle/SecurityBundle', 'Symfony/Bundle/TwigBundle',
    'Symfony/Bridge/Doctrine', 'Symfony/Bridge/Twig',
    'Symfony/Component/Asset', 'Symfony/Component/Cache', 'Symfony/Component/ExpressionLanguage', 'Symfony/Component/Form',
    'Symfony/Component/PropertyAccess', 'Symfony/Component/PropertyInfo', 'Symfony/Component/Translation',
    'Symfony/Component/Validator', 'Symfony/Component/VarExporter', 'Symfony/Component/Yaml',
    'Doctrine/ORM', 'Twig',
];
