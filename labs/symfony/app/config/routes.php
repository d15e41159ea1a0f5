<?php

use Journal\Controller\AdminController;
use Journal\Controller\FeedController;
use Journal\Controller\GlossaryController;
use Journal\Controller\ListController;
use Journal\Controller\PostController;
use Journal\Controller\SiteController;
use Journal\Entity\Section;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

// Five routes of the site and eight of each of its twelve sections: one hundred and one.
return static function (RoutingConfigurator $routes): void {
    $routes->add('front', '/')->controller([SiteController::class, 'front']);
    $routes->add('about', '/about')->controller([SiteController::class, 'about']);
    $routes->add('glossary', '/glossary/{page<\d+>}')->controller(GlossaryController::class);
    $routes->add('search', '/search')->controller([SiteController::class, 'search']);
    $routes->add('admin', '/admin')->controller(AdminController::class);

    foreach (Section::cases() as $section) {
        $name = $section->value;
        $paths = [
            'home' => ["/$name", [ListController::class, 'home'], ['GET']],
            'list' => ["/$name/page/{page<\d+>}", [ListController::class, 'page'], ['GET']],
            'tag' => ["/$name/tag/{tag}/{page<\d+>?1}", [ListController::class, 'tag'], ['GET']],
            'author' => ["/$name/author/{author<\d+>}/{page<\d+>?1}", [ListController::class, 'author'], ['GET']],
            'archive' => ["/$name/archive/{year<\d{4}>}/{page<\d+>?1}", [ListController::class, 'archive'], ['GET']],
            'feed' => ["/$name/feed.xml", FeedController::class, ['GET']],
            'post' => ["/$name/post/{slug}", [PostController::class, 'show'], ['GET']],
            'comment' => ["/$name/post/{slug}/comment", [PostController::class, 'comment'], ['GET', 'POST']],
        ];
        foreach ($paths as $kind => [$path, $controller, $methods]) {
            $routes->add("{$name}_$kind", $path)
                ->controller($controller)
                ->methods($methods)
                ->defaults(['section' => $name]);
        }
    }
};
