<?php
// A file of the saved state that a request moves into an object of its own. The object is freed after the resources of the
// request were sorted out. Many were opened and closed before, which makes the engine's list of them another kind of list.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $file = tmpfile();
    fwrite($file, "in a file\n");
    snapshot_state();
}

rewind($file);
report(['line' => fgets($file), 'exists' => is_file(stream_get_meta_data($file)['uri'])]);

for ($i = 0; $i < 100; $i++) {
    fclose(fopen(__FILE__, 'r'));
}
$late = fopen(__FILE__, 'r');
$owner = new ArrayObject([$file]);
unset($file);
// A second owner: else it would be freed before the request ends.
$again = $owner;
