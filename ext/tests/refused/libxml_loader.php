<?php
// libxml keeps the loader of external entities in a way that PHP cannot ask for.
// needs: libxml
// expect: entity loader
if (restore_state()) {
    exit('restored');
}
libxml_set_external_entity_loader(fn () => null);
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
