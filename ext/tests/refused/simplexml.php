<?php
// needs: simplexml
// expect: SimpleXMLElement
// expect: $app->services['xml']
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'xml' => simplexml_load_string('<a><b/></a>')];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
