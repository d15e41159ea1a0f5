<?php
// Many objects that point at each other, dynamic and magic properties, identity, clones, cycles that a request makes.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Node
    {
        public ?Node $next = null;
        public array $links = [];

        public function __construct(public int $id)
        {
        }
    }
    #[AllowDynamicProperties]
    class Loose
    {
        private array $hidden = ['k' => 'v'];
        public $unset = 1;
        public string $uninitialised;

        public function __get($name)
        {
            return $this->hidden[$name] ?? "no $name";
        }

        public function __set($name, $value)
        {
            $this->hidden[$name] = $value;
        }

        public function __isset($name)
        {
            return isset($this->hidden[$name]);
        }

        public function __unset($name)
        {
            unset($this->hidden[$name]);
        }

        public function __call($name, $arguments)
        {
            return [$name => $arguments];
        }

        public function __clone()
        {
            $this->hidden['cloned'] = ($this->hidden['cloned'] ?? 0) + 1;
        }
    }
    $nodes = [];
    for ($i = 0; $i < 2000; $i++) {
        $nodes[$i] = new Node($i);
    }
    foreach ($nodes as $i => $node) {
        $node->next = $nodes[($i + 1) % 2000];
        $node->links = ['self' => $node, 'far' => $nodes[($i * 7) % 2000], 'text' => "node $i"];
    }
    $first = $nodes[0];
    unset($nodes[1999], $node);
    $loose = new Loose();
    $loose->magic = 'set';
    unset($loose->unset);
    $copy = clone $loose;
    $plain = (object) ['1' => 'numeric', 'deep' => (object) ['er' => [1]]];
    $dynamic = new stdClass();
    for ($i = 0; $i < 100; $i++) {
        $dynamic->{"p$i"} = $i;
    }
    unset($dynamic->p50);
    snapshot_state();
}

$sum = 0;
$length = 0;
for ($at = $first; $length === 0 || $at !== $first; $at = $at->next) {
    $sum += $at->id * ($length % 7) + strlen($at->links['text']) + ($at->links['self'] === $at ? 1 : 1000);
    $length++;
    if ($length > 5000) {
        break;
    }
}
$new = new Node(-1);
$ids = array_map('spl_object_id', $nodes);
$loose->more = 'request';
report([
    'ring' => [$length, $sum, count($nodes), $first->next === $nodes[1], $nodes[0]->links['far'] === $nodes[0]],
    'identity' => [count(array_unique($ids)), in_array(spl_object_id($new), $ids, true), $first == $nodes[0]],
    'loose' => [$loose->k, $loose->magic, $loose->more, isset($loose->nothing), $loose->unset, $loose->call(1, 2), $copy->cloned, $copy->more],
    'uninitialised' => thrown(fn () => (function () {
        return $this->uninitialised;
    })->call($loose)),
    'plain' => [$plain, count((array) $dynamic), isset($dynamic->p50), $dynamic->p99, array_key_last(get_object_vars($dynamic))],
]);

// Taken apart: half of the ring is dropped, the rest gets new neighbours that live only in this request.
foreach ($nodes as $i => $node) {
    $node->next = $i % 2 ? $new : null;
    $node->links = [];
    $node->id = -5;
}
$nodes = array_slice($nodes, 0, 10);
unset($loose->k, $plain->deep, $dynamic->p99);
gc_collect_cycles();
wreck();
