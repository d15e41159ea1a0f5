<?php
// The list of included files: what the boot loaded is not loaded again, what a request loads is forgotten.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $returned = require_once __DIR__ . '/../fixtures/once.inc';
    $second = include_once __DIR__ . '/../fixtures/../fixtures/once.inc';
    $plain = include __DIR__ . '/../fixtures/plain.inc';
    $own = scratch('generated.php');
    file_put_contents($own, '<?php return ["generated", __FILE__ === $own];');
    $generated = require $own;
    snapshot_state();
}

$third = require_once __DIR__ . '/../fixtures/once.inc';
$exists = function_exists('loaded_later');
require_once __DIR__ . '/../fixtures/later.inc';
$files = array_diff(array_map('basename', get_included_files()), ['polyfill.php']);
report([
    'once' => [$returned, $second, $third, loaded_once(), LOADED_ONCE],
    'plain' => [$plain, include __DIR__ . '/../fixtures/plain.inc', $included],
    'later' => [$exists, loaded_later()],
    'generated' => [$generated, require $own],
    'files' => array_values($files),
    'missing' => @include 'no such file.php',
]);

wreck();
