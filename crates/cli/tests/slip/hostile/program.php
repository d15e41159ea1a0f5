<?php
// Breaks its own structures, as its first argument says, and waits.

function victim(string $case): void
{
    [$kind, $number] = explode('=', $case . '=');
    $number = (int) $number;
    $ffi = FFI::cdef('extern char executor_globals[4096];');
    $words = fn (int $at) => $ffi->cast('int64_t *', $at);
    // `current_execute_data`. An element is read by this function itself, so it is this function's frame.
    $globals = $words($ffi->cast('int64_t', FFI::addr($ffi->executor_globals))->cdata);
    $at = $globals[61];
    $frame = $words($at);
    $caller = $words($frame[6]);
    $function = $words($frame[3]);
    $name = $words($function[1]);
    $letters = $ffi->cast('char *', $function[1]);
    $path = $words($function[PHP_VERSION_ID >= 80400 ? 21 : 19]);
    // The first output asks for the name of this function's file.
    echo "breaking\n";
    switch ($kind) {
        case 'frame is its own caller': $frame[6] = $at; break;
        case 'frames in a circle': $caller[6] = $at; break;
        case 'caller': $frame[6] = $number; break;
        case 'caller between two words': $frame[6] = $at + 1; break;
        case 'function': $frame[3] = $number; break;
        case 'name': $function[1] = $number; break;
        case 'name of length': $name[2] = $number; break;
        case 'path of length': $path[2] = $number; break;
        case 'name with escapes': foreach (str_split("\x1b[31m\n") as $i => $c) $letters[24 + $i] = $c; break;
        case 'name that is not text': foreach (str_split("\xff\xfe\x80\x9b") as $i => $c) $letters[24 + $i] = $c; break;
        default: exit("no such case\n");
    }
    echo "ready\n";
    fgets(STDIN);
}

function outer(string $case): void
{
    victim($case);
}

outer($argv[1]);
