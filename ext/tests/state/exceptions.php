<?php
// Exceptions and errors that were thrown in the boot and are kept, with their causes and traces.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Failure extends DomainException
    {
        public function __construct(string $message, private array $context = [], ?Throwable $previous = null)
        {
            parent::__construct($message, 42, $previous);
        }

        public function context(): array
        {
            return $this->context;
        }
    }
    class Thrower
    {
        public function __invoke(int $depth)
        {
            if ($depth > 0) {
                return $this($depth - 1);
            }
            try {
                intdiv(1, 0);
            } catch (DivisionByZeroError $error) {
                throw new Failure('failed in boot', ['depth' => $depth], $error);
            }
        }
    }
    try {
        (new Thrower())(3);
    } catch (Failure $failure) {
    }
    try {
        (fn (int $x) => $x)('text');
    } catch (TypeError $type_error) {
    }
    $unthrown = new ErrorException('never thrown', 1, E_WARNING, 'a file', 77, $failure);
    $errors = [$failure, 'nested' => [new ArgumentCountError('args')]];
    set_error_handler(fn ($level, $message, $file, $line) => throw new ErrorException($message, 0, $level, $file, $line));
    try {
        echo $missing_in_boot;
    } catch (ErrorException $converted) {
    }
    restore_error_handler();
    snapshot_state();
}

$trace = array_map(fn ($frame) => ($frame['class'] ?? '') . ($frame['type'] ?? '') . $frame['function'], $failure->getTrace());
report([
    'failure' => [$failure->getMessage(), $failure->getCode(), $failure->getLine(), basename($failure->getFile()), $failure->context()],
    'trace' => [$trace, preg_match_all('/^#\d/m', $failure->getTraceAsString())],
    'previous' => [$failure->getPrevious()::class, $failure->getPrevious()->getMessage()],
    'type error' => [$type_error->getMessage() !== '', $type_error->getLine()],
    'unthrown' => [$unthrown->getSeverity(), $unthrown->getFile(), $unthrown->getLine(), $unthrown->getPrevious() === $failure, $errors[0] === $failure],
    'converted' => [$converted->getMessage(), $converted->getLine()],
    'again' => thrown(fn () => throw $failure),
    'new' => thrown(fn () => (new Thrower())(1)),
    'text' => strlen((string) $failure) > 100,
]);

$errors = null;
wreck();
