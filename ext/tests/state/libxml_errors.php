<?php
// Settings of libxml: internal errors switched on, an entity loader.
// needs: libxml, dom
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    libxml_use_internal_errors(true);
    $asked = [];
    libxml_set_external_entity_loader(function ($public, $system) use (&$asked) {
        $asked[] = basename((string) $system);
        return null;
    });
    snapshot_state();
}

$before = count(libxml_get_errors());
$document = new DOMDocument();
$loaded = $document->loadXML('<a><b></a>');
$errors = array_map(fn ($error) => [$error->code, $error->line, trim($error->message)], libxml_get_errors());
$document->loadXML('<!DOCTYPE a SYSTEM "file:///outside.dtd"><a/>', LIBXML_DTDLOAD);
report([
    'internal' => libxml_use_internal_errors(),
    'errors' => [$before, $loaded, $errors],
    'asked' => $asked,
    'text' => trim((string) $document->saveXML($document->documentElement)),
]);

libxml_set_external_entity_loader(null);
libxml_use_internal_errors(false);
$asked = ['wrecked'];
