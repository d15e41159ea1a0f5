<?php
// Has PCRE match from plain calls, from callbacks of usort, preg_replace_callback and array_map, from generators and methods; says of each match
// which functions PHP itself takes to be running, in the file that is its argument.
$log = fopen($argv[1], 'w');

function tell(): void
{
    global $log;
    $own = array_slice(debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS), 1);
    $calls = [];
    foreach ($own as $call) {
        $calls[] = [($call['class'] ?? '') . (isset($call['class']) ? '::' : '') . $call['function'], isset($call['file'])];
    }
    fwrite($log, json_encode($calls) . "\n");
}

function find(string $in): int
{
    tell();
    return preg_match('/(a+)b/', $in);
}

function descend(int $depth, string $in): int
{
    return $depth ? descend($depth - 1, $in) + 1 : find($in);
}

class Shop
{
    public function __toString(): string
    {
        return (string) find('aab');
    }

    public function compare(int $a, int $b): int
    {
        find('ab');
        return $a <=> $b;
    }

    public static function each(int $value): int
    {
        return descend($value % 4, 'aaab');
    }
}

function numbers(): iterable
{
    for ($number = 0; $number < 3; $number++) {
        yield find("a$number");
    }
}

function all(): iterable
{
    foreach (numbers() as $number) {
        yield $number;
    }
}

echo "ready\n";
fgets(STDIN);
$shop = new Shop();
for ($turn = 0; $turn < 25; $turn++) {
    descend($turn % 13, 'xaab');
    $list = [3, 1, 2];
    usort($list, [$shop, 'compare']);
    array_map('Shop::each', [1, 2, $turn]);
    foreach (all() as $number) {
    }
    strlen($shop);
}
fclose($log);
echo "done\n";
fgets(STDIN);
