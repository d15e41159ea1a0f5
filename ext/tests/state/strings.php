<?php
// Strings: literal, interned and built ones as values, keys, names of properties, functions and classes.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $literal = 'a literal string of the script';
    $built = implode(' ', ['a', 'built', 'string']);
    $character = chr(65);
    $number_key = ['12' => 'n', '012' => 's', '-7' => 'm'];
    $binary = "\0\x80\xff" . str_repeat("\0", 10);
    $keys = [];
    for ($i = 0; $i < 500; $i++) {
        $keys['built key ' . $i] = md5((string) $i);
    }
    $property = 'property ' . strlen($literal);
    $object = new stdClass();
    $object->$property = 1;
    $function = 'built_' . 'function_' . strlen($built);
    eval("function $function() { return __FUNCTION__; } class {$function}_class { public \$x = '$function'; const C = 'of eval'; }");
    $same = substr($literal, 0);
    $part = substr($literal, 2, 7);
    $heredoc = <<<TEXT
        interpolated $character and {$number_key['12']}
        TEXT;
    $appended = 'start';
    for ($i = 0; $i < 2000; $i++) {
        $appended .= $i;
    }
    $unicode = "s\u{fc}\u{df} \u{1F600}";
    snapshot_state();
}

$appended .= ' request';
$in_place = $built;
$in_place[0] = 'A';
$class = $function . '_class';
$built_again = 'built key ' . strlen(str_repeat('x', 77));
report([
    'values' => [$literal, $built, $in_place, $character, bin2hex($binary), $same === $literal, $part, $heredoc, $unicode],
    'keys' => [$number_key, count($keys), $keys[$built_again], isset($keys['built key 500']), md5(implode($keys))],
    'names' => [$object->{'property 30'} ?? null, $function(), (new $class())->x, constant("$class::C"), function_exists(strtoupper($function))],
    'appended' => digest($appended),
    'compared' => [$literal === 'a literal string of the script', $built == 'a built string', $part <=> 'literal', strcmp($character, 'A')],
    'functions' => [strtoupper($built), str_replace('built', $character, $built), sprintf('%s|%05d', $part, 42), ucwords($literal)],
]);

$appended[3] = '#';
$literal .= ' wrecked';
foreach ($keys as $key => $value) {
    $keys[$key][0] = '#';
}
wreck();
