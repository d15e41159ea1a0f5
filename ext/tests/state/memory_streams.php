<?php
// php://memory and php://temp: content and position. A temp stream that went to disk is a file without a name.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $memory = fopen('php://memory', 'w+');
    fwrite($memory, "one\ntwo\nthree\n");
    fseek($memory, 4);
    $temp = fopen('php://temp', 'w+');
    fwrite($temp, str_repeat('0123456789', 5000));
    fseek($temp, 49_990);
    $list = ['streams' => [&$memory]];
    snapshot_state();
}

$at = [ftell($memory), ftell($temp)];
fwrite($memory, 'TWO and much more than there was');
rewind($memory);
report([
    'at' => $at,
    'memory' => [stream_get_contents($memory), $list['streams'][0] === $memory],
    'temp' => [fread($temp, 100), feof($temp), rewind($temp), fread($temp, 5), fstat($temp)['size']],
    'new' => (function () {
        $new = fopen('php://memory', 'w+');
        fwrite($new, 'new');
        rewind($new);
        return fgets($new);
    })(),
]);

ftruncate($memory, 0);
ftruncate($temp, 10);
fseek($temp, 0);
fwrite($temp, str_repeat('x', 100_000));
fclose($memory);
