<?php
// Copies of saved objects by serialize, var_export, JSON, clone; comparisons; the results of earlier ones.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Packed implements JsonSerializable
    {
        private array $data = ['list' => [1, 2], 'self' => null];
        public ?Packed $other = null;
        public static int $woken = 0;

        public function __serialize(): array
        {
            return ['data' => $this->data, 'other' => $this->other];
        }

        public function __unserialize(array $from): void
        {
            self::$woken++;
            ['data' => $this->data, 'other' => $this->other] = $from;
        }

        public function jsonSerialize(): array
        {
            return $this->data + ['other' => $this->other !== null];
        }

        public function __clone()
        {
            $this->data['cloned'] = true;
        }

        public static function __set_state(array $values): static
        {
            $object = new static();
            $object->data = $values['data'];
            return $object;
        }
    }
    class Sleepy
    {
        public $a = 1;
        protected $b = [2];
        private $connection = 'not serialized';

        public function __sleep()
        {
            return ['a', 'b'];
        }

        public function __wakeup()
        {
            $this->connection = 'opened again';
        }

        public function connection()
        {
            return $this->connection;
        }
    }
    $one = new Packed();
    $two = new Packed();
    $one->other = $two;
    $two->other = $one;
    $text = serialize($one);
    $sleepy = unserialize(serialize(new Sleepy()));
    $incomplete = unserialize('O:7:"Unknown":1:{s:1:"x";i:5;}');
    snapshot_state();
}

$copy = unserialize($text);
report([
    'text' => [$text, serialize($one) === $text, $copy->other->other === $copy, Packed::$woken],
    'sleepy' => [$sleepy->connection(), serialize($sleepy)],
    'incomplete' => [serialize($incomplete), $incomplete::class],
    'json' => [json_encode($one), json_decode('{"a": {"b": [1, 2.5, null]}}')],
    'clone' => [clone $one, (clone $one)->other === $two],
    'equal' => [unserialize($text, ['allowed_classes' => false])::class, $sleepy == unserialize(serialize($sleepy))],
    'dump' => (function () use ($sleepy) {
        ob_start();
        var_dump((array) $sleepy);
        print_r($sleepy);
        return ob_get_clean();
    })(),
    'debug' => var_export(array_map(fn ($x) => is_object($x), [$one, $two]), true),
]);

Packed::$woken = 50;
wreck();
