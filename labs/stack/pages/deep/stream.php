<?php
/** Yields one line per level; each level is a generator that delegates to the next one. */
function numbered_lines(int $levels, int $level = 1): Generator
{
    yield format_line($level);
    if ($level < $levels) {
        yield from numbered_lines($levels, $level + 1);
    }
}

function format_line(int $level): string
{
    return str_pad((string) $level, 6, ' ', STR_PAD_LEFT) . ' ' . str_repeat(chr(97 + $level % 26), $level % 50);
}
