<?php
// needs: dom
// expect: DOMElement
// expect: $app->services['element']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'element' => (fn ($d) => $d->appendChild($d->createElement('a')))(new DOMDocument())];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
