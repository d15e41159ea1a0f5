--TEST--
snapshot_state() takes one image, and the script goes on
--EXTENSIONS--
slipstream
--SKIPIF--
<?php
if (!function_exists("opcache_get_status") || !opcache_get_status(false)) {
    die("skip needs opcache in the command line");
}
?>
--INI--
opcache.enable_cli=1
output_buffering=0
--FILE--
<?php
$restored = restore_state();
$fallbacks = array_sum(Slipstream\status()['fallbacks']);
class Kept
{
    public static $all = [];

    public function __construct(public int $id)
    {
        self::$all[$id] = $this;
    }

    public function __destruct()
    {
        if ($this->id === 7) {
            echo "destructed $this->id\n";
        }
    }
}
for ($i = 0; $i < 1000; $i++) {
    new Kept($i);
}
$text = str_repeat('text', 1_000_000);
$before = Slipstream\status();
snapshot_state();
$first = Slipstream\status();
snapshot_state();
$second = Slipstream\status();

// What comes after the snapshot must not be hindered by it.
$text[0] = 'T';
unset(Kept::$all[7]);
for ($i = 0; $i < 100_000; $i++) {
    $more[] = [$i, (object) ['i' => $i]];
}
gc_collect_cycles();
var_dump($restored, $fallbacks, $before['image'], is_array($first['image']), $first['snapshots'], $second['snapshots'], $second['restores']);
var_dump(substr($text, 0, 5), count(Kept::$all), count($more), Kept::$all[999]->id);
?>
--EXPECT--
destructed 7
bool(false)
int(1)
NULL
bool(true)
int(1)
int(1)
int(0)
string(5) "Textt"
int(999)
int(100000)
int(999)
