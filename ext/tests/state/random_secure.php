<?php
// Random\Engine\Secure has no state and may be kept. What random functions return differs from request to request.
// needs: random
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $engine = new Random\Engine\Secure();
    $randomizer = new Random\Randomizer($engine);
    $default = new Random\Randomizer();
    file_exists(scratch('seen')) || file_put_contents(scratch('seen'), '');
    snapshot_state();
}

// Restored state would give every request the same "random" values: that is what a token must never do.
$values = [
    bin2hex($randomizer->getBytes(8)), bin2hex($default->getBytes(8)), bin2hex($engine->generate()), bin2hex(random_bytes(8)),
    // Not lcg_value(): PHP 8.2 seeds it with the time alone, so it repeats by itself within a thousand requests.
    mt_rand() . '-' . mt_rand() . '-' . mt_rand(), rand() . '+' . rand() . '+' . rand(),
    uniqid('', true), str_shuffle(implode(range('a', 'z'))),
];
$seen = file(scratch('seen'), FILE_IGNORE_NEW_LINES);
file_put_contents(scratch('seen'), implode("\n", $values) . "\n", FILE_APPEND);
report([
    'repeated' => array_keys(array_intersect($values, $seen)),
    'lengths' => array_map('strlen', array_slice($values, 0, 4)),
    'same' => [$randomizer->engine === $engine, $default->engine::class],
]);
