<?php
/** What an application draws in a request. */

use Random\Engine;
use Random\Randomizer;

/** A generator written in PHP: its state is an object like any other, so a restore puts it back. */
final class OwnEngine implements Engine
{
    public function __construct(private int $state)
    {
    }

    public function generate(): string
    {
        $this->state = ($this->state * 1_103_515_245 + 12_345) & 0x7fff_ffff;
        return pack('V', $this->state * 2_654_435_761 & 0xffff_ffff);
    }
}

/** How many values of each kind a request draws. */
const DRAWS = 5;

/** Name => values. Widths stand in the runner. */
function draw(): array
{
    $all = [];
    for ($i = 0; $i < DRAWS; $i++) {
        $all['mt_rand'][] = mt_rand();
        $all['rand'][] = rand();
        $all['mt_rand range'][] = mt_rand(0, 999_999_999);
        $all['random_int'][] = random_int(0, (1 << 40) - 1);
        $all['random_int 128'][] = dechex(random_int(0, PHP_INT_MAX)) . dechex(random_int(0, PHP_INT_MAX));
        $all['random_bytes'][] = bin2hex(random_bytes(16));
        $all['lcg_value'][] = sprintf('%.17g', lcg_value());
        $all['uniqid'][] = uniqid('', true);
        $all['session_create_id'][] = session_create_id();
        $list = range(0, 19);
        shuffle($list);
        $all['shuffle'][] = implode(',', $list);
        $all['array_rand'][] = implode(',', array_rand(range(0, 199), 5));
        $all['str_shuffle'][] = str_shuffle('abcdefghijklmnopqrstuvwxyz');
        $secure = new Randomizer(new Engine\Secure());
        $all['Randomizer Secure'][] = bin2hex($secure->getBytes(16));
        $all['Randomizer'][] = bin2hex((new Randomizer())->getBytes(16));
        $all['Mt19937'][] = bin2hex((new Randomizer(new Engine\Mt19937()))->getBytes(4));
        $all['Xoshiro'][] = bin2hex((new Randomizer(new Engine\Xoshiro256StarStar()))->getBytes(16));
    }
    session_start();
    $all['session_id'][] = session_id();
    session_destroy();
    return $all;
}

/** A boot draws as well: what it has drawn must not come again. */
function boot(): array
{
    session_create_id();
    return [mt_rand(), rand(), lcg_value(), random_int(0, 9), shuffle_once(), uniqid('', true), bin2hex(random_bytes(4))];
}

function shuffle_once(): array
{
    $list = range(0, 9);
    shuffle($list);
    return $list;
}
