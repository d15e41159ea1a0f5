<?php
// Called from anywhere but the top level of the main script.
// expect from function: %a
// expect from method: %a
// expect from closure: %a
// expect from include: %a
// expect from callback: %a
// expect from generator: %a
if (restore_state()) {
    exit('restored');
}
function save(): void
{
    snapshot_state();
}
class Saver
{
    public function save(): void
    {
        snapshot_state();
    }
}
$one = [1];
$message = null;
try {
    match ($_GET['from']) {
        'function' => save(),
        'method' => (new Saver())->save(),
        'closure' => (fn () => snapshot_state())(),
        'include' => include __DIR__ . '/../fixtures/saves.inc',
        'callback' => array_walk($one, fn () => snapshot_state()),
        'generator' => iterator_to_array((function () {
            yield snapshot_state();
        })()),
    };
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
