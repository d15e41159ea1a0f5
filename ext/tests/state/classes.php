<?php
// Classes, interfaces, traits and enums from a file: their constants, static properties, static variables, relations.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    require __DIR__ . '/../fixtures/classes.inc';
    $book = Shop\Book::make('Moby Dick', 1250)->note('in boot');
    $pen = Shop\Pen::make('pen')->note('first')->note('second');
    Shop\Pen::$ink['red'] = 2;
    Shop\tax(0);
    $suit = Shop\Suit::Spades;
    $level = Shop\Level::High;
    snapshot_state();
}

$before = ['made' => [Shop\Book::$made, Shop\Pen::$made, Shop\Item::$made], 'ink' => Shop\Pen::$ink];
$book->note('in request');
$new = Shop\Book::make('new');
report($before + [
    'texts' => [(string) $book, (string) $pen, (string) $new],
    'interfaces' => array_values(class_implements($book)),
    'parents' => array_values(class_parents($book)),
    'traits' => array_values(class_uses(Shop\Item::class)),
    'instance' => [$book instanceof Shop\Priced, $pen instanceof Stringable, $pen instanceof Shop\Book],
    'constants' => [Shop\Book::CURRENCY, Shop\Book::KIND, Shop\Pen::KIND, Shop\Suit::Wild],
    'registry' => array_keys(Shop\Item::$registry),
    'last' => Shop\Item::$last === $new,
    'same' => Shop\Item::$registry['pen'] === $pen,
    'prices' => [$book->price(), $pen->price(), count($pen)],
    'enum' => [
        $suit === Shop\Suit::from('S'), Shop\Suit::tryFrom('X'), $suit->label(), Shop\Suit::cases(), Shop\Suit::random(),
        $level, $level === Shop\Level::High, match ($suit) { Shop\Suit::Hearts => 'red', Shop\Suit::Spades => 'black' },
    ],
    'rates' => [Shop\RATE, Shop\DYNAMIC, \Shop\TABLE, Shop\tax(1000)],
    'exists' => [
        class_exists('shop\BOOK'), interface_exists('Shop\Named'), trait_exists('Shop\Counts'), enum_exists('Shop\Level'),
        function_exists('Shop\tax'), defined('Shop\RATE'), class_exists('Shop\Missing'),
    ],
    'anew' => thrown(fn () => eval('namespace Shop; abstract class Other extends Item { const KIND = "other"; } new Other("x");')),
    'declared' => count(array_filter(get_declared_classes(), fn ($class) => str_starts_with($class, 'Shop\\'))),
]);

wreck();
Shop\Item::$registry = [];
Shop\Item::$last = null;
Shop\Book::$made = -1;
Shop\Pen::$ink['blue'] = 'spilled';
Shop\tax(5);
eval('namespace Shop; class Missing {} function late() {} const LATE = 1;');
