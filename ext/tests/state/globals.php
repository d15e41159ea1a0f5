<?php
// Global variables of every type, references between them, those that a request adds or removes.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $null = null;
    $true = true;
    $int = PHP_INT_MIN;
    $float = -0.0;
    $infinite = INF;
    $string = 'literal';
    $built = str_repeat('ab', 10);
    $empty = '';
    $array = ['a' => 1, 'nested' => ['b' => [true, null]]];
    $same = $array;
    $reference = &$array['nested']['b'];
    $alias = &$built;
    $list = [1, 2, 3];
    foreach ($list as $key => &$item) {
        $item *= 2;
    }
    $recursive = ['name' => 'me'];
    $recursive['self'] = &$recursive;
    $GLOBALS['by array'] = 'a name with a space';
    ${'1 odd-name'} = ['odd'];
    $removed = 'to be removed';
    $swap = [&$int, &$float];
    $count = 0;
    function reach(): array
    {
        global $count, $string;
        $count++;
        return [$count, $string, $GLOBALS['by array'], array_key_exists('undefined', $GLOBALS)];
    }
    reach();
    snapshot_state();
}

$count += 10;
$alias .= '+';
$reference[] = 'through the reference';
$item = 'last';
$recursive['self']['self']['added'] = 1;
$swap[0]++;
report([
    'scalars' => [$null, $true, $int, fdiv(1, $float) === -INF ? 'minus zero' : 'zero', $infinite > 1, $string, $built, $empty],
    'arrays' => [$array, $same, $list, array_keys($recursive), count($recursive['self']['self'])],
    'odd' => [$GLOBALS['by array'], ${'1 odd-name'}, $removed ?? 'gone', isset($added), isset($undefined)],
    'function' => reach(),
    'names' => array_values(array_diff(array_keys($GLOBALS), ['argc', 'argv', '_GET', '_POST', '_COOKIE', '_FILES', '_SERVER', '_ENV', '_REQUEST', '_SESSION'])),
    'extract' => (function () {
        extract($GLOBALS['array']);
        return [$a, $nested];
    })(),
]);

$recursive = null;
wreck();
unset($removed, $GLOBALS['by array'], $reference);
$added = 'by the request';
