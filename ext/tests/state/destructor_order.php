<?php
// The order of destructors at the end of a request: global variables first, then what is left, as it was created.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Loud
    {
        public mixed $other = null;

        public function __construct(public string $name)
        {
        }

        public function __destruct()
        {
            echo "destructed $this->name\n";
        }
    }
    $a = new Loud('a');
    $b = new Loud('b');
    $list = ['x' => new Loud('in a list')];
    $shared = [new Loud('shared')];
    $again = $shared[0];
    $one = new Loud('cycle one');
    $one->other = new Loud('cycle two');
    $one->other->other = $one;
    $last = new Loud('last');
    snapshot_state();
}

$new = new Loud('new');
report(['ready' => true]);
