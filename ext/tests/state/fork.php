<?php
// A child of a restored request sees what was restored, and nothing that it does reaches its parent or the next request,
// even while it goes on beside them. A child that is made before restore_state() boots: the image is its parent's.
// Children are killed, because the built-in server makes a second server of one that exits (snapshot_fork_server.phpt).
// needs: pcntl, posix, sapi=cli-server
// query: at=mid
// query: at=pre
// query: at=on
$early = null;
if ($_GET['at'] === 'pre') {
    $early = pcntl_fork();
    if ($early > 0) {
        pcntl_waitpid($early, $ended);
    }
}
$again = restore_state();
if (!$again) {
    require __DIR__ . '/../lib/case.php';
    class Account
    {
        public static int $changes = 0;
        public array $entries = [];

        public function __construct(public readonly string $owner, public ?Account $parent = null)
        {
        }

        public function add(int $amount): static
        {
            static $number = 0;
            $this->entries["entry " . ++$number] = $amount;
            self::$changes++;
            return $this;
        }

        public function __destruct()
        {
            self::$changes--;
        }
    }
    function look(): array
    {
        global $account, $large, $numbers, $count;
        return [
            $account->owner, $account->entries, $account->parent->entries, Account::$changes, digest(json_encode($large)),
            $numbers->current(), $count(), ini_get('precision'),
        ];
    }
    function child_ends(mixed $saw): never
    {
        file_put_contents(scratch('child'), json_encode($saw));
        posix_kill(getmypid(), SIGKILL);
    }
    function said(): mixed
    {
        $said = json_decode(file_get_contents(scratch('child')), true);
        unlink(scratch('child'));
        return $said;
    }
    $account = (new Account('Ada', (new Account('root'))->add(1)))->add(2)->add(3);
    $large = array_map(fn ($i) => "element $i", range(1, 10_000));
    $numbers = (fn () => yield from range(1, 9))();
    $count = function () {
        static $calls = 0;
        return ++$calls;
    };
    snapshot_state();
}
if ($early === 0) {
    $saw = look();
    wreck();
    child_ends([$again, $saw]);
}
if ($early > 0) {
    $child = said();
}

// What the last request was is not the same in all runs, so this is not a part of the answer but where it is wrong.
$wrong = null;
if (is_file(scratch('stays'))) {
    touch(scratch('enough'));
    pcntl_waitpid((int) file_get_contents(scratch('stays')), $status);
    unlink(scratch('enough'));
    unlink(scratch('stays'));
    $saw = said();
    $right = ['Ada', ['entry 2' => 2, 'entry 3' => 3, 'entry 4' => 500], ['entry 1' => 1], 4, digest('10000'), 1, 1, '14'];
    $wrong = $saw === $right ? null : $saw;
}
if ($_GET['at'] === 'mid') {
    $late = pcntl_fork();
    if ($late === 0) {
        // It has been restored already, or there is nothing yet: false in any case.
        $again = restore_state();
        $saw = look();
        $account->add(1_000);
        $numbers->next();
        ini_set('precision', '5');
        $changed = look();
        wreck();
        child_ends([$again, $saw, $changed]);
    }
    pcntl_waitpid($late, $ended);
    $child = said();
} elseif ($_GET['at'] === 'on') {
    $parent = getmypid();
    $late = pcntl_fork();
    if ($late === 0) {
        $account->add(500);
        for ($i = 0; posix_getppid() === $parent && !is_file(scratch('enough')); $i = ($i + 1) % 10_000) {
            $large[$i] = 'of the child';
            touch(scratch('writes'));
            usleep(100);
        }
        $large = count($large);
        child_ends(look());
    }
    while (!file_exists(scratch('writes'))) {
        if (pcntl_waitpid($late, $early_end, WNOHANG) === $late) {
            throw new Error('the child ended before it wrote');
        }
        usleep(100);
    }
    unlink(scratch('writes'));
    file_put_contents(scratch('stays'), (string) $late);
}
report(['parent' => look(), 'child' => $child ?? null, 'ended' => isset($ended) ? pcntl_wtermsig($ended) : null, 'wrong' => $wrong]);
$account->add(5);
wreck();
