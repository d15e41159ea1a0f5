<?php
// Xdebug that is loaded but off observes nothing, and is no reason to refuse.
// needs: so=xdebug
// start: zend_extension=xdebug
// start: xdebug.mode=off
class Counter
{
    private static int $made = 0;
    public readonly int $number;

    public function __construct(public array $list = [])
    {
        $this->number = ++self::$made;
    }

    public function fail(int $depth): never
    {
        throw $depth > 0 ? new LogicException('deep', $depth, new RuntimeException('deeper')) : new LogicException('flat');
    }

    public static function made(): int
    {
        return self::$made;
    }
}
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $counters = array_map(fn ($list) => new Counter($list), [[1], ['two' => 2]]);
    $sum = function (int ...$numbers) use ($counters) {
        static $calls = 0;
        return [++$calls, array_sum($numbers) + count($counters)];
    };
    $numbers = (function () {
        yield from range(1, 5);
    })();
    $numbers->next();
    $kept = thrown(fn () => $counters[0]->fail(1));
    snapshot_state();
}
$counters[] = new Counter();
report([
    'loaded' => [extension_loaded('xdebug'), xdebug_info('mode')],
    'counters' => $counters,
    'made' => Counter::made(),
    'sum' => [$sum(1, 2), $sum(3)],
    'generator' => $numbers->current(),
    'thrown' => [$kept, thrown(fn () => $counters[1]->fail(2)), thrown(fn () => $counters[1]->fail(0))],
]);
$numbers->next();
wreck();
