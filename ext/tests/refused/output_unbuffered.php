<?php
// Output that was made, and buffers that are open: they belong to the request.
// ini: output_buffering=0
// expect made printed: output
// expect made flushed: output
// expect made buffer: output
// expect made nested: output
if (restore_state()) {
    exit('restored');
}
switch ($_GET['made']) {
    case 'printed':
        echo "printed in boot\n";
        break;
    case 'flushed':
        echo "printed in boot\n";
        while (ob_get_level() > 0) {
            ob_end_flush();
        }
        flush();
        break;
    case 'buffer':
        ob_start();
        break;
    case 'nested':
        ob_start();
        ob_start(fn ($text) => $text);
        echo 'inside';
        break;
}
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
