<?php
// needs: xmlreader
// expect: XMLReader
// expect: $app->services['reader']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'reader' => (fn ($r) => $r->XML('<a/>') ? $r : null)(new XMLReader())];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
