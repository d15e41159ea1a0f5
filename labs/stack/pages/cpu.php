<?php
/**
 * Computes and does nothing else: no file, no socket, no sleep. The same steps for every request.
 * ?rounds=N repeats the work (4); one round takes about 1.5 ms.
 */

$rounds = max(1, min(1000, (int) ($_GET['rounds'] ?? 4)));
$checksum = 0;
for ($round = 0; $round < $rounds; $round++) {
    $checksum ^= count_primes(20000) ^ rank_words($round) ^ multiply_matrices(24);
}
header('Content-Type: application/json');
echo json_encode(['page' => 'cpu', 'rounds' => $rounds, 'checksum' => $checksum]), "\n";

function count_primes(int $limit): int
{
    $composite = array_fill(0, $limit + 1, false);
    $count = 0;
    for ($n = 2; $n <= $limit; $n++) {
        if ($composite[$n]) {
            continue;
        }
        $count++;
        for ($multiple = $n * $n; $multiple <= $limit; $multiple += $n) {
            $composite[$multiple] = true;
        }
    }
    return $count;
}

function rank_words(int $seed): int
{
    $words = [];
    for ($i = 0; $i < 400; $i++) {
        $words[] = substr(md5("$seed/$i"), 0, 8);
    }
    usort($words, fn (string $a, string $b): int => strrev($a) <=> strrev($b));
    return crc32(implode(',', $words));
}

function multiply_matrices(int $size): int
{
    $sum = 0;
    for ($row = 0; $row < $size; $row++) {
        for ($column = 0; $column < $size; $column++) {
            for ($k = 0; $k < $size; $k++) {
                $sum += ($row * $k + 1) * ($k - $column);
            }
        }
    }
    return $sum;
}
