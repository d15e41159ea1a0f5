<?php
// Error, exception and shutdown handlers, and the stacks of them.
// errors: a handler leaves some to PHP
// query: end=0
// query: end=throw
// query: end=trigger
// query: end=restored
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Reporter
    {
        public array $seen = [];

        public function error(int $level, string $message): bool
        {
            $this->seen[] = "$level $message";
            return true;
        }

        public function exception(Throwable $error): void
        {
            echo 'reporter got ', $error::class, ' ', $error->getMessage(), ' after ', count($this->seen), "\n";
        }

        public static function shutdown(string $argument, object $counter): void
        {
            echo "shutdown with $argument, counter ", ++$counter->n, ', query ', $_GET['end'] ?? 'none', "\n";
            register_shutdown_function(fn () => print "registered during shutdown\n");
        }
    }
    $reporter = new Reporter();
    $counter = (object) ['n' => 0];
    set_error_handler(fn ($level, $message) => (bool) print "outer handler: $message\n");
    set_error_handler(function ($level, $message) {
        echo "middle handler: $message\n";
        return true;
    }, E_USER_WARNING | E_USER_NOTICE);
    set_error_handler([$reporter, 'error']);
    set_exception_handler(fn ($e) => print 'outer exception handler: ' . $e->getMessage() . "\n");
    set_exception_handler([$reporter, 'exception']);
    register_shutdown_function(['Reporter', 'shutdown'], 'argument', $counter);
    register_shutdown_function(function () use ($reporter) {
        echo 'errors at shutdown: ', implode('; ', $reporter->seen), "\n";
    });
    trigger_error('in boot', E_USER_NOTICE);
    snapshot_state();
}

trigger_error('from the request', E_USER_WARNING);
echo $undefined_variable;
$seen = $reporter->seen;
ob_start();
if ($_GET['end'] === 'restored') {
    restore_error_handler();
    trigger_error('for the middle one', E_USER_WARNING);
    trigger_error('for PHP itself', E_USER_DEPRECATED);
    restore_error_handler();
    trigger_error('for the outer one', E_USER_WARNING);
    restore_error_handler();
    restore_exception_handler();
}
$printed = array_map(fn ($line) => preg_replace('~ in /.*~', '', $line), explode("\n", ob_get_clean()));
$current = set_error_handler(null);
restore_error_handler();
report([
    'seen' => $seen,
    'printed' => $printed,
    'current' => is_array($current) ? [$current[0] === $reporter, $current[1]] : $current,
    'last error' => error_get_last()['message'] ?? null,
]);

register_shutdown_function(fn () => print "registered by the request\n");
if ($_GET['end'] === 'trigger') {
    trigger_error('at the end', E_USER_ERROR);
}
if ($_GET['end'] === 'throw') {
    throw new RuntimeException('uncaught');
}
$counter->n = 100;
$reporter->seen = ['wrecked'];
set_exception_handler(fn () => print "never\n");
set_error_handler(fn () => (bool) print "never\n");
if ($_GET['end'] === 'restored') {
    restore_exception_handler();
    throw new LogicException('for the outer one');
}
