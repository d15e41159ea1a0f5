<?php
// SPL's data structures and iterators, with their positions, modes and subclasses.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Tasks extends SplHeap
    {
        protected function compare($a, $b): int
        {
            return strlen($b) <=> strlen($a);
        }
    }
    class Bag extends ArrayObject
    {
        public $extra = 'property';
    }
    $a = new stdClass();
    $b = new stdClass();
    $storage = new SplObjectStorage();
    $storage[$a] = 'data of a';
    $storage[$b] = ['nested' => $storage];
    $storage->rewind();
    $storage->next();
    $array = new ArrayObject(['x' => 1, 'y' => [2]], ArrayObject::ARRAY_AS_PROPS);
    // 8.5 wants no objects as arrays any more, but takes them.
    $bag = @new Bag(new ArrayObject(['inner' => 'value']));
    $iterator = $array->getIterator();
    $iterator->next();
    $list = new SplDoublyLinkedList();
    foreach (range(1, 5) as $n) {
        $list->push("item $n");
    }
    $list->setIteratorMode(SplDoublyLinkedList::IT_MODE_LIFO);
    $list->rewind();
    $list->next();
    $queue = new SplQueue();
    $queue->enqueue($a);
    $queue[] = 'second';
    $stack = new SplStack();
    $stack->push(1);
    $stack->push([2]);
    $fixed = SplFixedArray::fromArray([1, 'two', $a, null]);
    $fixed->setSize(6);
    $min = new SplMinHeap();
    $max = new SplMaxHeap();
    $tasks = new Tasks();
    foreach ([5, 1, 4, 2, 3] as $n) {
        $min->insert($n);
        $max->insert([$n, "n$n"]);
        $tasks->insert(str_repeat('t', $n));
    }
    $priority = new SplPriorityQueue();
    $priority->setExtractFlags(SplPriorityQueue::EXTR_BOTH);
    $priority->insert($a, 10);
    $priority->insert('low', 1);
    $priority->insert('high', [100, 1]);
    $caching = new CachingIterator(new ArrayIterator(['c' => 1, 'd' => 2, 'e' => 3]), CachingIterator::FULL_CACHE);
    $caching->rewind();
    $caching->next();
    $limit = new LimitIterator(new InfiniteIterator(new ArrayIterator(['p', 'q', 'r'])), 1, 5);
    $limit->rewind();
    $tree = new RecursiveIteratorIterator(new RecursiveArrayIterator([1, [2, [3, 4]], 5]));
    $tree->rewind();
    $tree->next();
    $multiple = new MultipleIterator(MultipleIterator::MIT_KEYS_ASSOC);
    $multiple->attachIterator(new ArrayIterator([1, 2, 3]), 'one');
    $multiple->attachIterator($array->getIterator(), 'two');
    $append = new AppendIterator();
    $append->append(new ArrayIterator([1]));
    $append->append(new ArrayIterator([2]));
    $filter = new CallbackFilterIterator(new ArrayIterator(range(1, 9)), fn ($n) => $n % 3 === 0);
    snapshot_state();
}

$storage_at = $storage->getInfo();
$array->z = 'request';
$array['y'][] = 3;
$queue->enqueue('third');
$fixed[5] = 'last';
$min->insert(0);
$tasks->insert('');
$priority->insert('middle', 5);
$list->push('item 6');
report([
    'storage' => [count($storage), $storage[$a], $storage[$b]['nested'] === $storage, is_array($storage_at), $storage->current() === $b, isset($storage[$array])],
    'array' => [$array->getArrayCopy(), $array->x, count($array), $iterator->key(), $array->getFlags()],
    'bag' => [$bag['inner'], $bag->extra, $bag->getIterator()->current(), serialize($bag)],
    'list' => [$list->current(), $list->key(), iterator_to_array($list), $list->offsetGet(0), count($list)],
    'queue' => [$queue->dequeue() === $a, $queue->dequeue(), $queue->isEmpty(), $queue->top()],
    'stack' => [$stack->pop(), $stack->top(), count($stack)],
    'fixed' => [array_map('gettype', $fixed->toArray()), $fixed->getSize(), thrown(fn () => $fixed[6])],
    'heaps' => [iterator_to_array($min, false), $max->extract(), $max->top(), $tasks->extract(), $tasks->extract(), count($tasks)],
    'priority' => [count($priority), $priority->extract(), $priority->top()['priority'], $priority->extract()['data'] === $a],
    'caching' => [$caching->current(), $caching->hasNext(), $caching->getCache()],
    'limit' => [$limit->getPosition(), iterator_to_array($limit, false)],
    'tree' => [$tree->current(), $tree->getDepth(), iterator_to_array($tree, false)],
    'multiple' => iterator_to_array($multiple, false),
    'append' => iterator_to_array($append, false),
    'filter' => array_values(iterator_to_array($filter)),
]);

$storage->removeAll(clone $storage);
$array->exchangeArray(['wrecked']);
while (!$list->isEmpty()) {
    $list->shift();
}
$fixed->setSize(1);
$fixed[0] = 'wrecked';
$queue->push('wrecked');
while ($max->valid()) {
    $max->extract();
}
$min->insert(-100);
$bag['inner'] = 'wrecked';
$bag['more'] = 1;
$append->append(new ArrayIterator(['wrecked']));
wreck();
