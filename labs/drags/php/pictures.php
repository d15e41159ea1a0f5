<?php
// Reads here and there in pictures of 24 MiB together, which PHP has in memory that it keeps. The drag is how long that takes.
require __DIR__ . '/lab.php';

const PICTURES = 192;
const BYTES = 128 << 10;

$pictures = array_map(fn (int $number): string => str_repeat(chr($number), BYTES), range(1, PICTURES));
$sum = 0;
$took = clock(function () use ($pictures, &$sum): void {
	for ($read = 0, $at = request_number(); $read < 20_000; $read++) {
		$at = ($at * 1_103_515_245 + 12_345) & 0x7fff_ffff;
		$sum += ord($pictures[$at % PICTURES][$at >> 8 & BYTES - 1]);
	}
});
echo $sum, "\n", $took;
