<?php
/** A list that thinks it is a tree: one child per node, so that its depth is the depth of the call stack. */
final class Tree
{
    private function __construct(private int $level, private ?Tree $child)
    {
    }

    public static function grow(int $depth, int $level = 0): self
    {
        return new self($level, $depth > 1 ? self::grow($depth - 1, $level + 1) : null);
    }

    /** Folds from the deepest node up; $step is called inside as many frames as there are nodes above. */
    public function fold(callable $step, int $start = 0): int
    {
        return $step($this->child === null ? $start : $this->child->fold($step, $start), $this);
    }

    /** Work at every depth: array_map enters PHP again through an internal function. */
    public function weight(): int
    {
        return array_sum(array_map(fn (int $n): int => crc32("$this->level/$n") & 0xff, range(1, 40)));
    }

    public function __destruct()
    {
        $this->child = null;
    }
}
