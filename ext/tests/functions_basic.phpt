--TEST--
All functions are there, with their parameters and return types
--EXTENSIONS--
slipstream
--FILE--
<?php
$functions = ['snapshot_state', 'restore_state', 'Slipstream\status', 'Slipstream\discard', 'Slipstream\before_snapshot', 'Slipstream\on_restore'];
foreach ($functions as $name) {
    $function = new ReflectionFunction($name);
    $parameters = array_map(fn ($p) => $p->getType() . ' $' . $p->getName(), $function->getParameters());
    echo $function->getName(), '(', implode(', ', $parameters), '): ', $function->getReturnType(), ' ', $function->getExtensionName(), "\n";
}
var_dump(is_subclass_of(Slipstream\SnapshotException::class, Exception::class));
foreach ($functions as $name) {
    try {
        $name(1, 2, 3);
    } catch (ArgumentCountError $error) {
        echo $error->getMessage(), "\n";
    }
}
?>
--EXPECT--
snapshot_state(): void slipstream
restore_state(): bool slipstream
Slipstream\status(): array slipstream
Slipstream\discard(): void slipstream
Slipstream\before_snapshot(callable $callback): void slipstream
Slipstream\on_restore(callable $callback): void slipstream
bool(true)
snapshot_state() expects exactly 0 arguments, 3 given
restore_state() expects exactly 0 arguments, 3 given
Slipstream\status() expects exactly 0 arguments, 3 given
Slipstream\discard() expects exactly 0 arguments, 3 given
Slipstream\before_snapshot() expects exactly 1 argument, 3 given
Slipstream\on_restore() expects exactly 1 argument, 3 given
