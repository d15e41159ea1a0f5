<?php
// php://temp that outgrew its memory limit and tmpfile(): files that nobody else can name. A request only reads them, because
// what is on disk is not put back.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $temp = fopen('php://temp/maxmemory:1024', 'w+');
    fwrite($temp, str_repeat('0123456789', 1000));
    fseek($temp, 5000);
    $file = tmpfile();
    fwrite($file, "in a file\nwithout a name\n");
    rewind($file);
    fgets($file);
    snapshot_state();
}

report([
    'temp' => [ftell($temp), fread($temp, 5), ftell($temp), fstat($temp)['size'], rewind($temp), digest(stream_get_contents($temp))],
    'file' => [ftell($file), fgets($file), feof($file), is_file(stream_get_meta_data($file)['uri'])],
]);

fseek($temp, 1);
rewind($file);
