<?php
// needs: pdo_sqlite
// expect: PDO
if (restore_state()) {
    exit('restored');
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'statement' => (new PDO('sqlite::memory:'))->query('SELECT 1')];
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
