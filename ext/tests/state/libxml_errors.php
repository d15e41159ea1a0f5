<?php
// Errors of libxml are kept inside: a setting of the boot.
// needs: libxml, dom
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    libxml_use_internal_errors(true);
    snapshot_state();
}

$before = count(libxml_get_errors());
$document = new DOMDocument();
$loaded = $document->loadXML('<a><b></a>');
$errors = array_map(fn ($error) => [$error->code, $error->line, trim($error->message)], libxml_get_errors());
$document->loadXML('<a>fine</a>');
report([
    'internal' => libxml_use_internal_errors(),
    'errors' => [$before, $loaded, $errors],
    'text' => trim((string) $document->saveXML($document->documentElement)),
]);

libxml_use_internal_errors(false);
