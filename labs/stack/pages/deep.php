<?php
/**
 * Deep and varied call stacks: recursion through static and object methods, closures called by internal functions,
 * generators that delegate to generators, an included file, and a destructor. ?depth=N frames of recursion (60).
 */

require __DIR__ . '/deep/tree.php';
require __DIR__ . '/deep/stream.php';

$depth = max(1, min(5000, (int) ($_GET['depth'] ?? 60)));
$tree = Tree::grow($depth);
$sum = $tree->fold(fn (int $sum, Tree $node): int => $sum + $node->weight());
foreach (numbered_lines($depth) as $line) {
    $sum += strlen($line);
}
// The included file computes in the scope of this one, and returns a value.
$sum += include __DIR__ . '/deep/leaf.php';
header('Content-Type: application/json');
echo json_encode(['page' => 'deep', 'depth' => $depth, 'sum' => $sum]), "\n";
