<?php
// Open plain files: position, buffer, mode. What a request closes is open again in the next one.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    foreach (['read', 'half', 'closed', 'dropped'] as $name) {
        $text = '';
        for ($i = 0; $i < 2000; $i++) {
            $text .= "$name line $i\n";
        }
        file_put_contents(scratch($name), $text);
    }
    $read = fopen(scratch('read'), 'r');
    fseek($read, 14 * 1000);
    fgets($read);
    $half = fopen(scratch('half'), 'rb');
    $first_lines = [fgets($half), fgets($half), fgetc($half)];
    $update = fopen(scratch('update'), 'w+');
    fwrite($update, "written in boot\nand more\n");
    fseek($update, 3);
    file_put_contents(scratch('append'), "start\n");
    $append = fopen(scratch('append'), 'a');
    fwrite($append, "appended in boot\n");
    fflush($append);
    $closed = ['deep' => (object) ['file' => fopen(scratch('closed'), 'r')]];
    fread($closed['deep']->file, 12);
    $dropped = fopen(scratch('dropped'), 'r');
    fgets($dropped);
    $end = fopen(scratch('read'), 'r');
    while (!feof($end)) {
        fread($end, 8192);
    }
    $gone = fopen(scratch('read'), 'r');
    fclose($gone);
    $same = $read;
    $folder = dirname(scratch('x'));
    snapshot_state();
}

$kept = array_map('get_resource_type', [$read, $half, $update, $append, $closed['deep']->file, $dropped, $end]);
$update_now = [ftell($update), fgets($update), ftell($update)];
$update_write = [fwrite($update, 'AND'), fseek($update, 0), stream_get_contents($update)];
report([
    'kept' => $kept,
    'read' => [ftell($read), fgets($read), fgets($same)],
    'half' => [$first_lines, ftell($half), fgets($half), ftell($half), digest(stream_get_contents($half)), feof($half)],
    'update' => [$update_now, $update_write, stream_get_meta_data($update)['mode']],
    'append' => [fwrite($append, "appended by a request\n"), fflush($append), str_starts_with(file_get_contents(scratch('append')), "start\nappended in boot\n")],
    'closed' => [fread($closed['deep']->file, 6), ftell($closed['deep']->file)],
    'dropped' => fgets($dropped),
    'end' => [feof($end), rewind($end), fgets($end), feof($end)],
    'gone' => [is_resource($gone), gettype($gone)],
]);

fclose($closed['deep']->file);
fclose($read);
$dropped = null;
rewind($half);
fseek($update, 0);
fwrite($update, "written in boot\nand more\n");
ftruncate($update, strlen("written in boot\nand more\n"));
fseek($update, 17);
fseek($end, 100);
// Takes the numbers of what was closed.
$new = [fopen(scratch('half'), 'r'), fopen(scratch('read'), 'r'), fopen(scratch('new'), 'w')];
fgets($new[0]);
