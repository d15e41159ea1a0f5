<?php
// What restored requests have left in freed memory must not be saved with the next image, in bytes that no variable leads
// to. The last of five queries is asked by the last of five kinds of requests: one without a body follows, which is saved.
// needs: sapi=cli-server
// query: d=0
// query: d=0&n=2
// query: d=0&n=3
// query: d=0&n=4
// query: d=1
// discards: d=1
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    function image_has(string $text): ?int
    {
        foreach (file('/proc/self/maps') as $line) {
            if (preg_match('~^(\w+)-(\w+) r--s .*/memfd:slipstream-image~', $line, $match)) {
                [$start, $end] = array_map(hexdec(...), array_slice($match, 1));
                $memory = fopen('/proc/self/mem', 'r');
                fseek($memory, $start);
                return substr_count(stream_get_contents($memory, $end - $start), $text);
            }
        }
        return null;
    }
    $list = [];
    for ($i = 0; $i < 300; $i++) {
        // Blocks of many sizes, most of which are larger than what they hold.
        $list["key $i"] = [str_repeat(chr(97 + $i % 26), 20 + $i % 90), ['one' => $i]];
    }
    snapshot_state();
}
// Made here: the text as a whole stands in no file.
$secret = strrev('1c7-eton eulb');
$found = image_has($secret);
$left = [];
for ($i = 0; $i < 2_000; $i++) {
    $left[] = $secret . str_repeat('-', $i % 64);
}
if ($_GET['d']) {
    Slipstream\discard();
}
report(['count' => count($list), 'read' => $found !== null || !Slipstream\status()['restored'], 'found' => $found ?? 0]);
