<?php
// The same object in all places where it can be kept; each path is named.
// needs: random
// expect place global: $engine
// expect place array: $list['deep'][2]
// expect place private: $holder->secret
// expect place static_property: Holder::$shared
// expect place function: engine
// expect place method: engine
// expect place closure: $closure
// expect place this: $closure
// expect place generator: $generator
// expect place storage: $storage
// expect place weakmap: $map
// expect place exception: $exception
// expect place constant: KEPT
// expect place handler: Random\Engine\Mt19937
// expect place autoloader: Random\Engine\Mt19937
// expect place shutdown: Random\Engine\Mt19937
// expect place server: $_SERVER['engine']
// expect place reference: Random\Engine\Mt19937
// expect place cycle: Random\Engine\Mt19937
if (restore_state()) {
    exit('restored');
}
class Holder
{
    private $secret;
    public static $shared;

    public function keep($value): static
    {
        $this->secret = $value;
        return $this;
    }

    public function method($value = null)
    {
        static $engine;
        return $engine ??= $value;
    }

    public function closure(): Closure
    {
        return fn () => $this->secret;
    }

    public function listen()
    {
    }
}
function kept($value = null)
{
    static $engine;
    return $engine ??= $value;
}
$make = fn () => new Random\Engine\Mt19937(7);
switch ($_GET['place']) {
    case 'global':
        $engine = $make();
        break;
    case 'array':
        $list = ['deep' => [0, 1, $make()]];
        break;
    case 'private':
        $holder = (new Holder())->keep($make());
        break;
    case 'static_property':
        Holder::$shared = $make();
        break;
    case 'function':
        kept($make());
        break;
    case 'method':
        (new Holder())->method($make());
        break;
    case 'closure':
        $closure = (fn ($engine) => fn () => $engine)($make());
        break;
    case 'this':
        $closure = (new Holder())->keep($make())->closure();
        break;
    case 'generator':
        $generator = (function () use ($make) {
            $local = $make();
            yield 1;
            return $local;
        })();
        $generator->current();
        break;
    case 'storage':
        $storage = new SplObjectStorage();
        $storage[$make()] = 1;
        break;
    case 'weakmap':
        $key = new stdClass();
        $map = new WeakMap();
        $map[$key] = [$make()];
        break;
    case 'exception':
        $exception = new class ($make()) extends Exception {
            public function __construct(public object $engine)
            {
                parent::__construct('holds it');
            }
        };
        break;
    case 'constant':
        define('KEPT', $make());
        break;
    case 'handler':
        set_error_handler([(new Holder())->keep($make()), 'listen']);
        break;
    case 'autoloader':
        spl_autoload_register([(new Holder())->keep($make()), 'listen']);
        break;
    case 'shutdown':
        register_shutdown_function([(new Holder())->keep($make()), 'listen']);
        break;
    case 'server':
        $_SERVER['engine'] = $make();
        break;
    case 'reference':
        $target = $make();
        $reference = &$target;
        $list = [&$reference];
        unset($target, $reference);
        break;
    case 'cycle':
        $cycle = new Holder();
        $cycle->keep([$cycle, $make()]);
        Holder::$shared = new SplObjectStorage();
        Holder::$shared[$cycle] = $cycle;
        unset($cycle);
        break;
}
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
