<?php
// A Randomizer is refused for the engine inside it.
// needs: random
// expect: Random\Engine\Mt19937
// expect: $randomizer
if (restore_state()) {
    exit('restored');
}
$randomizer = new Random\Randomizer(new Random\Engine\Mt19937(1));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
