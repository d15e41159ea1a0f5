<?php
// What the main script itself declares: PHP does so before the first statement, also in requests that are restored.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    require __DIR__ . '/../fixtures/classes.inc';
    define('OWN', ['own' => 1]);
    $first = new Hoisted('boot');
    if (true) {
        class Late extends Shop\Pen
        {
            public static $late = ['boot'];
        }
        function late($x = OWN)
        {
            static $n = 0;
            return [$x, ++$n];
        }
    }
    late();
    Hoisted::$made[] = 'by boot';
    hoisted();
    $late = new Late('late');
    snapshot_state();
}

// Not declared before it is reached, because of the trait: so it is no part of the saved state.
class Reached
{
    use Twice;
}

// Their parents are known only after the state is back.
class Delayed extends Shop\Pen
{
    public static int $delayed = 3;
}
class MoreDelayed extends Late
{
}
enum Choice: int
{
    case One = 1;
    case Two = 2;
}

$second = new Hoisted('request');
report([
    'made' => Hoisted::$made,
    'hoisted' => [hoisted(), hoisted()],
    'objects' => [$first->name, $second->name, $first::class === $second::class, $first instanceof Base],
    'late' => [Late::$late, late(), (string) $late, OWN],
    'case' => Choice::from(2)->name,
    'trait' => (new Reached())->twice(21),
    'delayed' => [Delayed::$delayed++, (string) new Delayed('delayed'), MoreDelayed::$late, (string) new MoreDelayed('more')],
    'line' => __LINE__,
    'file' => [basename(__FILE__), basename((new ReflectionClass('Hoisted'))->getFileName()), basename($_SERVER['SCRIPT_NAME'])],
    'forward' => after(),
]);

wreck();
Hoisted::$made = [];
Late::$late = 'wrecked';
late();
hoisted();

function hoisted(): int
{
    static $calls = 100;
    return $calls++;
}

class Base
{
    public static array $made = ['nothing'];
}

class Hoisted extends Base
{
    public function __construct(public string $name)
    {
        self::$made[] = $name;
    }
}

trait Twice
{
    public function twice(int $n): int
    {
        return $n * 2;
    }
}

function after(): string
{
    return 'declared below';
}
