<?php
// Closures: bound, static, by reference, recursive, arrow functions, first-class callables, rebound scopes.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Service
    {
        private array $secret = ['inner'];

        public function __construct(public string $name)
        {
        }

        public function reader(): Closure
        {
            return fn (string $more = '') => $this->name . implode($this->secret) . $more;
        }

        public function add(string $text): int
        {
            return array_push($this->secret, $text);
        }

        public static function make(string $name): static
        {
            return new static($name);
        }

        public function __call($name, $arguments)
        {
            return "$name(" . implode(',', $arguments) . ')';
        }

        public function __invoke($x)
        {
            return "$this->name invoked with $x";
        }
    }
    $service = new Service('service');
    $value = 1;
    $list = [3, 1, 2];
    $total = 0;
    $reader = $service->reader();
    $by_value = function () use ($value, $list) {
        return [$value++, array_pop($list)];
    };
    $by_reference = function (int $n) use (&$total, &$value) {
        $value = "set by $n";
        return $total += $n;
    };
    $static = static function () {
        static $state = ['calls' => 0];
        $state['calls']++;
        return $state + ['this' => isset($this)];
    };
    $static();
    $factorial = function (int $n) use (&$factorial) {
        return $n < 2 ? 1 : $n * $factorial($n - 1);
    };
    $strlen = strlen(...);
    $add = $service->add(...);
    $make = Service::make(...);
    $magic = $service->whatever(...);
    $from = Closure::fromCallable([$service, 'add']);
    $rebound = Closure::bind(fn () => $this->name .= '+', new Service('a9'), Service::class);
    $peek = Closure::bind(fn (Service $s) => $s->secret, null, Service::class);
    $compose = fn (callable ...$f) => fn ($x) => array_reduce($f, fn ($v, $g) => $g($v), $x);
    $composed = $compose('trim', strrev(...), fn ($x) => "$x!$value");
    $by_reference(5);
    $handlers = ['b' => [$reader, 'Service::make', [$service, 'add']], 'i' => $service];
    $generic = (new ReflectionMethod($service, 'add'))->getClosure($service);
    snapshot_state();
}

$add('by request');
report([
    'reader' => $reader(' more'),
    'by value' => [$by_value(), $by_value()],
    'by reference' => [$by_reference(10), $value, $total],
    'static' => $static(),
    'factorial' => $factorial(10),
    'callables' => [$strlen('four'), $from('again'), $generic('third'), $make('made')->name, $magic(1, 2), $peek($service)],
    'same' => [$add == $service->add(...), (new ReflectionFunction($reader))->getClosureThis() === $service],
    'rebound' => [$rebound(), $rebound()],
    'composed' => $composed('  abc '),
    'handlers' => [$handlers['b'][0](), call_user_func($handlers['b'][1], 'n')->name, call_user_func($handlers['b'][2], 'x'), $handlers['i']('it')],
    'sorted' => (function () use ($list) {
        usort($list, fn ($a, $b) => $a <=> $b);
        return $list;
    })(),
]);

$by_reference(1000);
$static();
$rebound();
$factorial = null;
$service->add('wrecked');
$service->name = 'wrecked';
wreck();
