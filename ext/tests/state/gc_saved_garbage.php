<?php
// Saved objects that become garbage during a request, in cycles: the collector finds them, in this request only.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Watched
    {
        public static int $destructed = 0;
        public array $links = [];

        public function __destruct()
        {
            self::$destructed++;
        }
    }
    $list = [];
    $weak = [];
    for ($i = 0; $i < 100; $i++) {
        $list[$i] = new Watched();
        $list[$i]->links = ['self' => $list[$i], 'array' => [&$list[$i]->links]];
        $weak[$i] = WeakReference::create($list[$i]);
    }
    snapshot_state();
}

$before = Watched::$destructed;
array_splice($list, 0, 40);
gc_collect_cycles();
report([
    'collected' => [$before, Watched::$destructed],
    'alive' => count(array_filter($weak, fn ($reference) => $reference->get() !== null)),
]);

$list = [];
gc_collect_cycles();
Watched::$destructed = -1;
