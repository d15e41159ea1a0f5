<?php
// Readonly properties and classes, initialised and not; constructor promotion; clones.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Point
    {
        public readonly array $list;
        public readonly ?Point $later;

        public function __construct(public readonly int $x, protected readonly object $inner)
        {
            $this->list = ['x' => $x, 'inner' => $inner];
        }

        public function later(Point $point): static
        {
            $this->later = $point;
            return $this;
        }

        public function moved(int $x): static
        {
            return new static($x, $this->inner);
        }

        public function inner(): object
        {
            return $this->inner;
        }
    }
    $inner = new ArrayObject(['mutable inside']);
    $one = new Point(1, $inner);
    $two = (new Point(2, $inner))->later($one);
    eval('readonly class Whole { public function __construct(public string $name, private array $data) {} function data() { return $this->data; } }');
    $whole = new Whole('whole', ['k' => [1, 2]]);
    snapshot_state();
}

$inner[] = 'request';
report([
    'values' => [$one->x, $two->x, $two->later === $one, array_keys($one->list), $one->inner() === $two->list['inner']],
    'refused' => [thrown(fn () => $one->x = 5), thrown(fn () => $two->later($two)), thrown(fn () => $whole->name = 'x'), thrown(fn () => $whole->new = 1)],
    'uninitialised' => [thrown(fn () => $one->later), isset($one->later)],
    'initialised now' => [$one->later($two)->later === $two, thrown(fn () => $one->later($one))],
    'whole' => [$whole->name, $whole->data(), $whole == new Whole('whole', ['k' => [1, 2]])],
    'moved' => [$two->moved(9)->x, isset($two->moved(9)->later), (clone $two)->later === $one],
    'inner' => count($inner),
]);

wreck();
$inner['wrecked'] = true;
$two = null;
