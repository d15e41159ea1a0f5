<?php
// Preloaded classes stay in the engine's tables for good, and an image would put tables of its own in their place.
// start: opcache.preload={tests}/fixtures/preloaded.inc
// start: opcache.preload_user=www-data
// expect: opcache.preload
if (restore_state()) {
    exit('restored');
}
// Nothing else loads the class: without preloading the case would fail here.
$greeter = new Preloaded\Greeter('Ada');
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
