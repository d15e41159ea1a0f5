<?php
// needs: xmlwriter
// expect: XMLWriter
// expect: $app->services['writer']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'writer' => (fn ($w) => $w->openMemory() ? $w : null)(new XMLWriter())];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
