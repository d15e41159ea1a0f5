<?php
// A value of the body of a form.
// post: name=Ada&password=melon-902f1c44
// never: melon-902f1c44
// expect ?how=variable: $kept
// expect ?how=private: $keeper->hidden
// expect ?how=longer: $log[0]
if (restore_state()) {
    exit('restored');
}
require __DIR__ . '/../lib/secrets.php';
extract(keep($_GET['how'], $_POST['password']));
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
