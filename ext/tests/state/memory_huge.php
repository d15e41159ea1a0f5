<?php
// Blocks of several megabytes: strings and arrays that are written in place, grown, shrunk, freed and replaced.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $big = str_repeat('abcdefgh', 3 * 1024 * 128);
    $exact = str_repeat('x', 2 * 1024 * 1024 - 25);
    $shared = $big;
    $array = range(0, 300_000);
    $map = [];
    for ($i = 0; $i < 100_000; $i++) {
        $map["key $i"] = $i;
    }
    $strings = [];
    for ($i = 0; $i < 20_000; $i++) {
        $strings[] = str_repeat(chr(97 + $i % 26), $i % 300);
    }
    $holder = (object) ['big' => str_repeat('held', 600_000)];
    $fixed = SplFixedArray::fromArray(range(1, 200_000));
    $freed = str_repeat('freed before the snapshot', 200_000);
    unset($freed);
    $pieces = array_map(fn ($n) => str_repeat("$n", 100_000), range(0, 9));
    unset($pieces[3], $pieces[7]);
    snapshot_state();
}

$big[5] = '!';
$array[100_000] = 'changed';
$array[] = 'grown';
$holder->big .= str_repeat('more', 700_000);
unset($map['key 5']);
$map['new'] = 1;
$new = str_repeat('new block', 400_000);
$fixed[199_999] = 'last';
report([
    'strings' => [digest($big), digest($shared), digest($exact), digest($holder->big), digest($new)],
    'array' => [count($array), $array[99_999], $array[100_000], $array[300_001], array_sum(array_slice($array, 0, 1000))],
    'map' => [count($map), isset($map['key 5']), $map['key 99999'], array_key_last($map)],
    'many' => [count($strings), digest(implode($strings))],
    'fixed' => [count($fixed), $fixed[0], $fixed[199_999]],
    'pieces' => [array_keys($pieces), digest(implode($pieces))],
    'memory' => memory_get_usage() > 20_000_000 && memory_get_peak_usage() < 200_000_000,
]);

$big = substr($big, 0, 100);
$exact .= str_repeat('y', 5_000_000);
$shared[0] = '!';
$array = null;
foreach ($map as $key => $value) {
    $map[$key] = 'wrecked';
}
$strings = array_map('strrev', $strings);
$pieces[3] = str_repeat('reused', 100_000);
$holder->big = '';
$fixed->setSize(10);
gc_mem_caches();
$again = str_repeat('wrecked', 1_000_000);
