<?php
// Reads 2 MiB of a file of 64, in each request the next ones. The drag is how long that takes.
require __DIR__ . '/lab.php';

const PIECE = 2 << 20;
const PIECES = 32;

$file = fopen(__DIR__ . '/file', 'r');
fseek($file, request_number() % PIECES * PIECE);
$sum = 0;
$took = clock(function () use ($file, &$sum): void {
	for ($left = PIECE; $left > 0; $left -= strlen($text)) {
		$text = fread($file, min($left, 65_536));
		$sum += crc32($text);
	}
});
echo compute(3_000_000), $sum, "\n", $took;
