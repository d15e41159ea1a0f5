<?php
// Layouts of arrays: packed, with holes, hashed; next free index, internal position, copies shared before they are written.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $packed = [1, 2, 3];
    $holes = range(0, 9);
    unset($holes[3], $holes[9]);
    $popped = [1, 2, 3];
    array_pop($popped);
    $negative = [-5 => 'a'];
    $negative[] = 'b';
    $mixed = ['0' => 'zero', '01' => 'text', '1.7' => 'text', true => 'true', '' => 'empty', "\0x" => 'nul'];
    $large = [];
    for ($i = 0; $i < 1000; $i++) {
        $large[($i * 7919) % 10_007] = $i;
        $large["s$i"] = -$i;
    }
    for ($i = 0; $i < 900; $i++) {
        unset($large["s$i"]);
    }
    $position = ['a' => 1, 'b' => 2, 'c' => 3];
    next($position);
    $ended = [1];
    next($ended);
    $full = [PHP_INT_MAX => 'last'];
    $shared = ['deep' => ['er' => [1, 2, 3]]];
    $copies = [$shared, $shared, 'k' => $shared['deep']];
    $constant = [1, ['two' => 'literal'], 3];
    $references = ['x' => 1];
    $held = &$references['x'];
    $copy_with_reference = $references;
    $empty = [];
    $from_packed = [10, 20];
    $from_packed['key'] = 30;
    snapshot_state();
}

$holes[] = 'next';
$popped[] = 'next';
$negative[] = 'next';
$copies[0]['deep']['er'][] = 4;
$held++;
$constant[1]['two'] .= '+';
$empty['now'] = 1;
$from_packed[] = 'next';
report([
    'packed' => [$packed, array_is_list($packed), $holes, array_is_list($holes), $popped, $negative],
    'mixed' => array_map(fn ($key) => [$key, $mixed[$key]], array_keys($mixed)),
    'large' => [count($large), array_sum($large), md5(implode(',', array_keys($large))), $large['s950'], isset($large['s5'])],
    'positions' => [key($position), current($position), next($position), key($ended), current($ended)],
    'full' => thrown(fn () => $GLOBALS['full'][] = 1),
    'copies' => [$shared, $copies[0], $copies['k']],
    'constant' => $constant,
    'references' => [$references, $copy_with_reference],
    'grown' => [$empty, $from_packed],
    'iterated' => (function () {
        $seen = [];
        foreach ($GLOBALS['position'] as $key => &$value) {
            $seen[] = $key;
            if ($key === 'a') {
                $GLOBALS['position']['d'] = 4;
            }
        }
        return $seen;
    })(),
]);

sort($packed);
array_splice($holes, 1, 3);
ksort($large);
end($position);
$held = 'wrecked';
$copies = array_fill(0, 1000, 'wrecked');
shuffle($mixed);
wreck();
