<?php
// Suspended generators: sent values, keys, delegation, finally, references, $this; destroyed at the end of each request.
// unordered: what is left at the end of a request may be destroyed in any order
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    function echoes()
    {
        $got = yield 'k' => 'first';
        try {
            while (true) {
                $got = yield "k-$got" => strtoupper((string) $got);
            }
        } finally {
            echo "finally of echoes after $got\n";
        }
    }
    function inner(string $name)
    {
        try {
            $x = yield "$name 1";
            $x = yield "$name 2 $x";
            return "$name returned $x";
        } finally {
            echo "finally of $name\n";
        }
    }
    function outer(Generator $shared)
    {
        $result = yield from inner('inner');
        yield $result;
        yield from [10, 20, 30];
        yield from $shared;
        return 'outer is done';
    }
    function &by_reference(array &$list)
    {
        foreach ($list as $key => &$item) {
            yield $key => $item;
        }
    }
    function through_list(array $list)
    {
        foreach ($list as $key => $item) {
            foreach (str_split($item) as $letter) {
                yield $key => $letter;
            }
        }
    }
    class Source implements IteratorAggregate
    {
        private $position = 0;

        public function getIterator(): Generator
        {
            while ($this->position < 100) {
                yield $this->position => $this->position++ * 2;
            }
        }
    }
    function catching()
    {
        while (true) {
            try {
                yield 'waiting';
            } catch (Exception $e) {
                yield 'caught ' . $e->getMessage();
            }
        }
    }
    $echoes = echoes();
    $echoes->current();
    $echoes->send('boot');
    $shared = (fn () => yield from ['s1', 's2', 's3'])();
    $outer = outer($shared);
    $outer->current();
    $outer->send('sent in boot');
    $second = outer($shared);
    $list = ['a' => 1, 'b' => 2, 'c' => 3];
    $references = by_reference($list);
    $references->current();
    $letters = through_list(['x' => 'one', 'y' => 'two']);
    $letters->next();
    $source = new Source();
    $iterator = $source->getIterator();
    $iterator->next();
    $catching = catching();
    $catching->current();
    $finished = (function () {
        yield 1;
        return 'finished';
    })();
    foreach ($finished as $unused) {
    }
    $unstarted = echoes();
    $closure = (function () use (&$list) {
        foreach ($list as $key => $item) {
            yield $item => yield $key;
        }
    })();
    $closure->current();
    snapshot_state();
}

$seen = [$echoes->key(), $echoes->current(), $echoes->send('request'), $echoes->key()];
$outside = [$outer->current()];
foreach (range(1, 5) as $step) {
    $outside[] = $outer->send("step $step");
}
$shared_now = [$shared->current(), $second->current(), $second->next()];
foreach ($references as $key => &$item) {
    $item = "$key changed";
}
unset($item);
$rest = [];
while ($letters->valid() && $letters->current() !== 't') {
    $rest[] = $letters->key() . $letters->current();
    $letters->next();
}
$numbers = [$iterator->current()];
foreach (new NoRewindIterator($iterator) as $at => $number) {
    $numbers[] = "$at=$number";
    if ($at > 3) {
        break;
    }
}
report([
    'echoes' => $seen,
    'outer' => $outside,
    'shared' => $shared_now,
    'references' => [$list, $references->valid()],
    'letters' => [$rest, $letters->current()],
    'source' => $numbers,
    'catching' => [$catching->throw(new Exception('from request')), $catching->current()],
    'finished' => [$finished->valid(), $finished->getReturn(), thrown(fn () => $finished->rewind())],
    'unstarted' => [$unstarted->current(), $unstarted->send('x')],
    'closure' => [$closure->current(), $closure->send('sent'), $closure->key()],
    'rewind' => thrown(fn () => $echoes->rewind()),
]);

while ($outer->valid()) {
    $outer->next();
}
$echoes->send('wrecked');
$catching->next();
$catching->throw(new Exception('wrecked'));
$letters->next();
$unstarted = null;
wreck();
