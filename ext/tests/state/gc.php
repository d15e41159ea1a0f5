<?php
// The cycle collector during a request: saved objects that become garbage, new cycles through saved objects, settings.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Linked
    {
        public array $links = [];
        public function __construct(public string $name)
        {
        }
    }
    $root = new Linked('root');
    for ($i = 0; $i < 300; $i++) {
        $node = new Linked("n$i");
        $node->links = ['root' => $root, 'self' => $node, 'array' => [&$node->links]];
        $root->links[$i] = $node;
    }
    unset($node);
    // Garbage of the boot.
    for ($i = 0; $i < 100; $i++) {
        $garbage = new Linked('garbage');
        $garbage->links[] = $garbage;
    }
    unset($garbage);
    snapshot_state();
}

for ($i = 0; $i < 100; $i++) {
    unset($root->links[$i]);
}
gc_collect_cycles();
for ($i = 0; $i < 30_000; $i++) {
    $cycle = new Linked('cycle');
    $cycle->links = [$cycle, $root];
}
unset($cycle);
gc_collect_cycles();
report([
    'left' => count($root->links),
    'rest' => array_sum(array_map(fn ($node) => $node->links['self'] === $node && $node->links['root'] === $root ? 1 : 0, $root->links)),
    'status' => [gc_enabled(), gc_status()['runs'] > 0],
    'names' => [$root->links[100]->name, $root->links[299]->name],
]);

$root = null;
gc_collect_cycles();
gc_disable();
