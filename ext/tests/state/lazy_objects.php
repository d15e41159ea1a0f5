<?php
// Lazy ghosts and proxies: still lazy, initialised in the boot, initialised by a request, failing ones.
// needs: php>=8.4
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Heavy
    {
        public static int $made = 0;
        public array $data;
        public readonly string $name;

        public function __construct(string $name)
        {
            self::$made++;
            $this->name = $name;
            $this->data = ["loaded for $name"];
        }
    }
    $class = new ReflectionClass(Heavy::class);
    $ghost = $class->newLazyGhost(fn (Heavy $object) => $object->__construct('ghost'));
    $proxy = $class->newLazyProxy(fn () => new Heavy('proxy'));
    $ready_ghost = $class->newLazyGhost(function (Heavy $object) {
        $object->__construct('ready ghost');
    });
    $ready_ghost->data[] = 'boot';
    $ready_proxy = $class->newLazyProxy(fn () => new Heavy('ready proxy'));
    $ready_proxy->data[] = 'boot';
    $failing = $class->newLazyGhost(fn () => throw new RuntimeException('cannot be loaded'));
    $partial = $class->newLazyGhost(function (Heavy $object) {
        $object->data = ['rest'];
    });
    $class->getProperty('name')->setRawValueWithoutLazyInitialization($partial, 'known before');
    $list = ['all' => [$ghost, $proxy]];
    snapshot_state();
}

$lazy = array_map(fn ($o) => $class->isUninitializedLazyObject($o), [$ghost, $proxy, $ready_ghost, $ready_proxy, $failing, $partial]);
report([
    'lazy' => $lazy,
    'made' => Heavy::$made,
    'partial' => [$partial->name, $class->isUninitializedLazyObject($partial), $partial->data],
    'ghost' => [$ghost->name, $ghost->data, $list['all'][0] === $ghost],
    'proxy' => [$proxy->name, $proxy->data, $proxy instanceof Heavy],
    'ready' => [$ready_ghost->data, $ready_proxy->data, $ready_proxy->name],
    'failing' => [thrown(fn () => $failing->name), $class->isUninitializedLazyObject($failing)],
    'made now' => Heavy::$made,
    'lazy now' => array_map(fn ($o) => $class->isUninitializedLazyObject($o), [$ghost, $proxy]),
    'new' => $class->newLazyGhost(fn ($o) => $o->__construct('new'))->name,
]);

$ghost->data[] = 'wrecked';
$ready_proxy->data = ['wrecked'];
Heavy::$made = 100;
