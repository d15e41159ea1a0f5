<?php
// Objects with destructors: each runs once per request, at its end or when the object is dropped; never for the saved ones.
// unordered: what is left at the end of a request may be destroyed in any order
// query: do=0
// query: do=drop
// query: do=resurrect
// query: do=throw
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Loud
    {
        public static array $said = [];
        public static ?Loud $rescued = null;
        public mixed $other = null;

        public function __construct(public string $name)
        {
        }

        public function __destruct()
        {
            self::$said[] = $this->name;
            echo "destructed $this->name, ", count(self::$said) > 2 ? 'not the first' : 'the first', "\n";
            if (($_GET['do'] ?? '') === 'resurrect' && $this->name === 'b') {
                self::$rescued = $this;
            }
            if (($_GET['do'] ?? '') === 'throw' && $this->name === 'c') {
                throw new LogicException('thrown by a destructor');
            }
        }
    }
    class Parented extends Loud
    {
        public function __destruct()
        {
            parent::__destruct();
            echo "and it was $this->name, a ", static::class, "\n";
        }
    }
    $a = new Loud('a');
    $b = new Parented('b');
    $c = new Loud('c');
    $list = ['x' => new Loud('in a list'), 'y' => new Loud('dropped from a list')];
    $one = new Loud('cycle one');
    $two = new Loud('cycle two');
    $one->other = $two;
    $two->other = $one;
    $closure = (fn ($kept) => fn () => $kept->name)(new Loud('in a closure'));
    Loud::$said[] = 'boot';
    snapshot_state();
}

$new = new Loud('new');
ob_start();
switch ($_GET['do']) {
    case 'drop':
        $a = null;
        unset($list['y'], $b);
        break;
    case 'resurrect':
        unset($b);
        break;
    case 'throw':
        try {
            unset($c);
        } catch (LogicException $e) {
            echo $e->getMessage(), "\n";
        }
        break;
}
$during = explode("\n", ob_get_clean());
report([
    'during' => $during,
    'said' => Loud::$said,
    'rescued' => Loud::$rescued?->name,
    'alive' => [isset($a), isset($b), isset($c), $closure()],
]);
Loud::$said[] = 'wrecked';
Loud::$rescued = null;
