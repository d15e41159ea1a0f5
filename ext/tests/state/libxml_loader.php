<?php
// The loader of external entities.
// needs: libxml, dom
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $asked = [];
    libxml_set_external_entity_loader(function ($public, $system) use (&$asked) {
        $asked[] = basename((string) $system);
        return null;
    });
    snapshot_state();
}

$document = new DOMDocument();
@$document->loadXML('<!DOCTYPE a SYSTEM "file:///outside.dtd"><a/>', LIBXML_DTDLOAD);
report(['asked' => $asked, 'text' => trim((string) $document->saveXML($document->documentElement))]);

libxml_set_external_entity_loader(null);
$asked = ['wrecked'];
