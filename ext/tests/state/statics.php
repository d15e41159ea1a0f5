<?php
// Static properties along an inheritance, static variables of functions, methods, closures and generators.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    #[AllowDynamicProperties]
    class A
    {
        public static $shared = ['a'];
        public static $own = 'A';
        private static ?self $instance = null;
        public static int|string $typed = 5;

        public static function instance(): self
        {
            return self::$instance ??= new self();
        }

        public function count(): array
        {
            static $calls = 0, $list = [];
            $list[] = static::class;
            return [++$calls, $list];
        }

        public static function &reference(): array
        {
            static $kept = ['kept'];
            return $kept;
        }
    }
    class B extends A
    {
        public static $own = 'B';
    }
    function counter(string $step = '')
    {
        static $text = 'start', $object = null, $n = 1 + 2;
        $object ??= new ArrayObject();
        $object[] = $step;
        return [$text .= $step, count($object), $n++];
    }
    A::instance()->tag = 'boot';
    B::$shared[] = 'through B';
    (new A())->count();
    (new B())->count();
    A::reference()[] = 'boot';
    counter('boot');
    $typed = &A::$typed;
    $closure = function () {
        static $n = 0;
        return ++$n;
    };
    $closure();
    $copy = clone $closure;
    $copy();
    $arrow = static fn () => A::instance()->count()[0];
    function numbers()
    {
        static $runs = 0;
        $runs++;
        yield $runs;
        yield $runs * 10;
    }
    $generator = numbers();
    $generator->current();
    numbers()->current();
    snapshot_state();
}

$typed++;
report([
    'properties' => [A::$shared, B::$shared, A::$own, B::$own, A::$typed, A::instance() === B::instance(), A::instance()->tag],
    'methods' => [(new A())->count(), (new B())->count(), A::instance()->count()],
    'reference' => A::reference(),
    'function' => counter('request'),
    'closures' => [$closure(), $copy(), (clone $closure)(), $arrow()],
    'generators' => [$generator->current(), $generator->next(), $generator->current(), numbers()->current()],
    'reflection' => [
        (new ReflectionFunction('counter'))->getStaticVariables()['n'],
        array_keys((new ReflectionClass('B'))->getStaticProperties()),
    ],
]);

wreck();
A::$shared[0] = 'wrecked';
B::$own = 'wrecked';
A::instance()->tag = 'wrecked';
A::reference()[0] = 'wrecked';
counter('wrecked');
$closure();
$copy();
$generator->next();
