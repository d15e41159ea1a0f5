<?php
/** What the boot leaves behind: something of every kind of memory, and its checksum. */

/** How long the booted text is: a block of its own size class, beyond what fits into a chunk. */
const HUGE_BYTES = 3_000_000;

enum Colour: string
{
    case Red = 'red';
    case Green = 'green';
}

class Node
{
    public static int $made = 0;
    public static array $registry = [];
    public ?Node $next = null;

    public function __construct(public readonly int $number, public array $data, public Colour $colour)
    {
        self::$made++;
        self::$registry["node $number"] = strrev("node $number");
    }
}

/** Ends with every request, and can end it. */
class Ender
{
    public bool $exits = false;

    public function __destruct()
    {
        if ($this->exits) {
            exit('destructor exits');
        }
    }
}

class Kernel
{
    /** @var list<Node> */
    public array $nodes = [];
    public array $services = [];
    public array $texts = [];
    public string $huge;
    public Ender $ender;
    public WeakMap $weak;
    public Generator $generator;
    /** @var array<string, resource> */
    public array $files = [];

    public function __construct(public readonly string $host, public readonly string $precision, public readonly string $environment)
    {
        $last = null;
        $this->weak = new WeakMap();
        for ($i = 0; $i < 300; $i++) {
            $node = new Node($i, ['key' . $i => $i * 1.5, 'list' => range($i, $i + $i % 17)], $i % 2 ? Colour::Red : Colour::Green);
            $node->next = $last;
            $this->nodes[] = $last = $node;
            $this->weak[$node] = "weak $i";
        }
        $this->nodes[0]->next = $last;
        foreach ([7, 60, 500, 2_500, 9_000, 70_000, 400_000] as $bytes) {
            $this->texts[$bytes] = str_repeat(chr(97 + $bytes % 26) . $bytes, intdiv($bytes, 4));
        }
        $this->huge = str_repeat('huge text ', HUGE_BYTES / 10);
        $this->ender = new Ender();
        foreach (['a', 'b', 'c'] as $name) {
            $this->services[$name] = function (int $add) use ($name): string {
                static $calls = 0;
                return $name . ($calls += $add);
            };
        }
        $this->generator = (function () {
            for ($i = 0;; $i++) {
                yield $i => "step $i";
            }
        })();
        $this->generator->next();
        $this->files['self'] = fopen(__FILE__, 'r');
        $this->files['memory'] = fopen('php://memory', 'w+');
        fgets($this->files['self']);
        fwrite($this->files['memory'], 'in memory');
    }

    /** Everything that a request could have damaged, in one short word. Moves nothing. */
    public function checksum(): string
    {
        $hash = hash_init('xxh3');
        foreach ($this->nodes as $number => $node) {
            hash_update($hash, "$number $node->number {$node->colour->value} {$this->weak[$node]} " . json_encode($node->data));
            $next = $node->next;
            hash_update($hash, $next === null ? 'end' : "to $next->number");
        }
        foreach ($this->texts as $bytes => $text) {
            hash_update($hash, "$bytes $text");
        }
        hash_update($hash, $this->huge);
        hash_update($hash, json_encode([
            count($this->weak), count($this->services), Node::$made, Node::$registry, $this->generator->key(), $this->generator->current(),
            $this->ender->exits, isset($this->files['self']) ? ftell($this->files['self']) : null,
            isset($this->files['memory']) ? stream_get_contents($this->files['memory'], null, 0) : null, $GLOBALS['booted'] ?? null,
            TABLE, ini_get('user_agent'), date_default_timezone_get(), count(spl_autoload_functions()), function_exists('made_by_eval'),
        ]));
        return hash_final($hash);
    }
}

const TABLE = ['constant' => ['of' => ['arrays', 1, 2.5, null, true]]];

function boot(): Kernel
{
    spl_autoload_register(fn (string $class) => null);
    eval('function made_by_eval() { return "made"; }');
    ini_set('user_agent', 'booted agent');
    date_default_timezone_set('Asia/Tokyo');
    mt_srand(7);
    return new Kernel($_SERVER['HTTP_HOST'], ini_get('precision'), $_SERVER['APP_ENV'] ?? 'none');
}
