<?php
// Property hooks: virtual and backed properties, on interfaces, by reference, with parents.
// needs: php>=8.4
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    interface HasName
    {
        public string $name { get; }
    }
    class Person implements HasName
    {
        private array $log = [];
        public string $name {
            get => "$this->first $this->last";
            set(string $value) {
                [$this->first, $this->last] = explode(' ', $value, 2);
                $this->log[] = $value;
            }
        }
        public int $age = 1 {
            set => $value < 0 ? throw new ValueError('negative') : $value;
        }
        private array $tags = ['a'];
        public array $byReference {
            &get => $this->tags;
        }

        public function __construct(public string $first, public string $last)
        {
        }

        public function log(): array
        {
            return $this->log;
        }
    }
    class Loud extends Person
    {
        public string $name {
            get => strtoupper(parent::$name::get());
            set {
                parent::$name::set(trim($value));
            }
        }
    }
    $person = new Person('Ada', 'Quill');
    $person->name = 'Grace Murray Hopper';
    $person->age = 30;
    $loud = new Loud('quiet', 'voice');
    $loud->byReference[] = 'in boot';
    $property = new ReflectionProperty('Person', 'name');
    snapshot_state();
}

$before = [$person->name, $loud->name];
$loud->name = ' by request ';
$loud->byReference[] = 'request';
report([
    'before' => $before,
    'names' => [$person->name, $loud->name, $person->first, $person->log(), $loud->log()],
    'age' => [$person->age, thrown(fn () => $person->age = -1), $person->age],
    'reference' => [$loud->byReference, $person->byReference],
    'reflection' => [$property->isVirtual(), count($property->getHooks()), $property->getHook(PropertyHookType::Get)->invoke($person)],
    'json' => json_encode($person),
    'anonymous' => (new class { public $x { get => __PROPERTY__; } })->x,
]);

$person->name = 'Wrecked Person';
$person->age = 99;
$loud->byReference[0] = 'wrecked';
