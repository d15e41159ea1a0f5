<?php
// Slipstream\discard(): the image is dropped at the end of the request, the next request boots and saves the state again.
// query: n=0
// query: n=1
// query: discard=1
// discards: discard=1
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Counter
    {
        public static array $all = [];
    }
    Counter::$all[] = $counter = (object) ['n' => 1, 'text' => str_repeat('counted ', 1000)];
    $file = fopen(__FILE__, 'r');
    fgets($file);
    snapshot_state();
}

if (isset($_GET['discard'])) {
    Slipstream\discard();
}
$counter->n++;
report(['counter' => [$counter->n, count(Counter::$all), strlen($counter->text)], 'file' => ftell($file)]);

Counter::$all[] = 'wrecked';
wreck();
