<?php
// Asymmetric visibility of properties, and other syntax of PHP 8.4.
// needs: php>=8.4
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Account
    {
        public private(set) int $balance = 10;
        public protected(set) array $log = [];
        final public private(set) ?Account $parent = null;

        public function __construct(public private(set) readonly string $owner)
        {
        }

        public function add(int $amount, ?Account $from = null): static
        {
            $this->balance += $amount;
            $this->log[] = $amount;
            $this->parent = $from ?? $this->parent;
            return $this;
        }
    }
    class Savings extends Account
    {
        public function clear(): void
        {
            $this->log = [];
        }
    }
    $account = new Account('one')->add(5);
    $savings = new Savings('two')->add(7, $account);
    #[Deprecated('use another', since: '1.0')]
    function old_function(): string
    {
        return 'old';
    }
    snapshot_state();
}

$savings->add(1);
report([
    'values' => [$account->balance, $savings->balance, $account->log, $savings->log, $savings->parent === $account, $account->owner],
    'refused' => [
        thrown(fn () => $account->balance = 1), thrown(fn () => $savings->log[] = 1), thrown(fn () => $account->owner = 'x'),
        thrown(fn () => $savings->parent = null),
    ],
    'functions' => [array_find([1, 5, 9], fn ($n) => $n > 3), array_any($account->log, fn ($n) => $n === 5), @old_function()],
]);

$account->add(1000);
$savings->clear();
$savings->add(3, $savings);
