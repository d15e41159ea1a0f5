<?php
// Requests that end in all ways: the next one finds the saved state all the same.
// errors: two of the ways are fatal errors
// query: end=0
// query: end=exit
// query: end=throw
// query: end=fatal
// query: end=memory
// query: end=deep
// query: end=unfinished
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    ini_set('memory_limit', '64M');
    class Service
    {
        public array $calls = [];
        public ?Service $parent = null;

        public function call(string $what): int
        {
            try {
                $this->calls[] = $what;
                return $this->parent?->call("$what up") ?? count($this->calls);
            } finally {
                $this->calls[] = "after $what";
            }
        }

        public function end(string $way): void
        {
            $kept = [$this, str_repeat($way, 1000)];
            foreach ($this->calls as $call) {
                match ($way) {
                    'exit' => exit("exit\n"),
                    'throw' => throw new RuntimeException('thrown in the middle'),
                    'fatal' => undefined_function(),
                    'memory' => str_repeat('x', 200_000_000),
                    'deep' => $this->deep(5000),
                    default => null,
                };
            }
        }

        private function deep(int $depth): never
        {
            $local = [$depth => $this];
            $depth === 0 ? exit("exit from below\n") : $this->deep($depth - 1);
        }
    }
    $service = new Service();
    $service->parent = new Service();
    $service->call('boot');
    $generator = (function () use ($service) {
        while (true) {
            yield $service->call('generator');
        }
    })();
    $generator->current();
    snapshot_state();
}

$result = [$service->call('request'), $generator->send(null)];
report(['result' => $result, 'calls' => [$service->calls, $service->parent->calls]]);
// A memory limit discards what is still in a buffer.
while (ob_get_level() > 0) {
    ob_end_flush();
}
wreck();
$service->calls = ['wrecked'];
if ($_GET['end'] === 'unfinished') {
    ob_start(fn ($text) => strtoupper($text));
    echo "left in a buffer\n";
    function left_behind() { yield 1; exit("exit from a generator\n"); }
    foreach (left_behind() as $value) {
        $GLOBALS['left'] = new class { public function __destruct() { echo "left behind\n"; } };
    }
}
$service->end($_GET['end']);
