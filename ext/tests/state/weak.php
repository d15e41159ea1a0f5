<?php
// WeakMap and WeakReference whose keys and targets are saved objects: entries vanish with the object, in this request only.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Key
    {
        public ?WeakReference $parent = null;

        public function __construct(public string $name)
        {
        }
    }
    class Cache
    {
        private WeakMap $map;

        public function __construct()
        {
            $this->map = new WeakMap();
        }

        public function of(Key $key): array
        {
            return $this->map[$key] ??= ['computed for' => $key->name];
        }

        public function names(): array
        {
            $names = [];
            foreach ($this->map as $key => $value) {
                $names[] = "$key->name:" . count($value);
            }
            return $names;
        }
    }
    $keys = [];
    foreach (['a', 'b', 'c', 'd'] as $name) {
        $keys[$name] = new Key($name);
    }
    $map = new WeakMap();
    foreach ($keys as $name => $key) {
        $map[$key] = "value of $name";
    }
    $map[$keys['d']] = $keys['d'];
    $cyclic = new WeakMap();
    $cyclic[$map] = $keys['a'];
    $cyclic[$keys['a']] = $cyclic;
    $cache = new Cache();
    $cache->of($keys['a']);
    $cache->of($keys['b']);
    $references = array_map(WeakReference::create(...), $keys);
    $keys['b']->parent = $references['a'];
    $dead = WeakReference::create(new Key('dead'));
    $closure = fn () => 1;
    $map[$closure] = 'a closure';
    $second = new WeakMap();
    $second[$keys['c']] = [1, 2, 3];
    unset($key);
    snapshot_state();
}

$before = [count($map), $cache->names(), count($second)];
$fresh = new Key('fresh');
$map[$fresh] = 'fresh';
$fresh_reference = WeakReference::create($fresh);
$cache->of($keys['c']);
unset($keys['c']);
$dropped = [$references['c']->get() === null, count($map), $cache->names(), count($second)];
$fresh = null;
$parent = $keys['b']->parent;
report([
    'before' => $before,
    'dropped' => $dropped,
    'fresh' => [$fresh_reference->get() === null, count($map)],
    'values' => array_map(fn ($key) => is_object($map[$key]) ? $map[$key]->name : $map[$key], $keys),
    'closure' => $map[$closure],
    'references' => [
        $references['a']->get() === $keys['a'], $dead->get(), $parent->get()->name,
        WeakReference::create($keys['a']) === $references['a'],
    ],
    'cyclic' => [$cyclic[$map]->name, $cyclic[$keys['a']] === $cyclic, count($cyclic)],
    'cache' => [$cache->of($keys['a']), $cache->names()],
    'missing' => thrown(fn () => $map[new Key('new')]),
]);

$map[$keys['a']] = 'wrecked';
unset($map[$keys['b']], $keys['d'], $keys['a']);
$second = null;
$cache->of(new Key('short'));
$closure = null;
gc_collect_cycles();
wreck();
