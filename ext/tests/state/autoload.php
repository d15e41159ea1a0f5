<?php
// Autoloaders: their order, prepended ones, methods and closures; classes that only some requests load.
// query: load=A1
// query: load=OnDemand
// query: load=Generated5
// query: load=Absent
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Loader
    {
        public array $asked = [];

        public function __construct(private string $folder)
        {
        }

        public function load(string $class): void
        {
            $this->asked[] = $class;
            if (is_file("$this->folder/$class.php")) {
                require_once "$this->folder/$class.php";
            }
        }

        public static function first(string $class): void
        {
            $GLOBALS['order'][] = "first $class";
        }
    }
    $order = [];
    $loader = new Loader(__DIR__ . '/../fixtures/autoload');
    spl_autoload_register([$loader, 'load']);
    spl_autoload_register(function (string $class) use (&$order) {
        $order[] = "closure $class";
        if (str_starts_with($class, 'Generated')) {
            eval("class $class { const NAME = '$class'; public static \$n = 0; }");
        }
    });
    spl_autoload_register('Loader::first', true, true);
    spl_autoload_register($unregistered = fn (string $class) => $order[] = "unregistered $class");
    spl_autoload_unregister($unregistered);
    ByFile::$uses[] = 'boot';
    Generated1::$n++;
    class_exists('Missing');
    snapshot_state();
}

$load = $_GET['load'];
$before = [class_exists($load, false), class_exists('Generated1', false), class_exists('ByFile', false)];
$loaded = class_exists($load);
if ($load === 'OnDemand') {
    new OnDemand();
}
report([
    'before' => $before,
    'loaded' => [$loaded, $load === 'OnDemand' ? OnDemand::$count : null, $load === 'Generated5' ? Generated5::NAME : null],
    'boot' => [ByFile::$uses, ByFile::BASE, Generated1::$n, get_parent_class('ByFile')],
    'order' => $order,
    'asked' => $loader->asked,
    'registered' => array_map(fn ($f) => is_array($f) ? (is_object($f[0]) ? $f[0]::class : $f[0]) . "::$f[1]" : get_debug_type($f), spl_autoload_functions()),
    'missing' => thrown(fn () => new NotThere()),
]);

foreach (spl_autoload_functions() as $function) {
    spl_autoload_unregister($function);
}
spl_autoload_register(fn ($class) => throw new Exception("wrecked by $class"));
wreck();
ByFile::$uses = [];
Generated1::$n = 100;
