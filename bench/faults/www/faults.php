<?php
/** One function for each fault. The name is what the request asks for: short, so that no value of a request is in the state. */

/** Prints the worker's state as it is when the request begins, commits the fault, and prints `end` if it survives it. */
function handle(Kernel $kernel, string $edited_at_boot): void
{
    static $requests = 0;
    $requests++;
    $memory = memory_get_usage(true);
    $fault = $_GET['f'] ?? '';
    header('X-Restored: ' . (int) Slipstream\status()['restored'] . ' ' . getmypid());
    $line = [
        'state' => $kernel->checksum(), 'requests' => $requests, 'value' => $_GET['v'] ?? '', 'host' => $kernel->host,
        'precision' => $kernel->precision, 'environment' => $kernel->environment, 'booted' => key($GLOBALS['booted']),
        'at boot' => $edited_at_boot, 'now' => require __DIR__ . '/edited_later.php', 'memory' => $memory,
    ];
    echo json_encode($line), "\n";
    $name = "fault_$fault";
    if ($fault !== '' && function_exists($name)) {
        $name($kernel);
    }
    // Whatever happened, the worker's state is worn now.
    $kernel->texts[7][0] = '!';
    $kernel->nodes[5]->data['worn'] = ['by' => $fault];
    Node::$registry['worn'] = $kernel->services['a'](1);
    $kernel->generator->next();
    echo 'end';
}

/** The control: each small damage must give another checksum. */
function fault_ctl(Kernel $kernel): void
{
    $damage = [
        fn () => $kernel->texts[7][0] = '!',
        fn () => $kernel->huge[2_000_000] = '!',
        fn () => $kernel->nodes[299]->data['list'][] = 1,
        fn () => $kernel->nodes[5]->next = null,
        fn () => $kernel->weak[$kernel->nodes[9]] = '!',
        fn () => $kernel->generator->next(),
        fn () => fgets($kernel->files['self']),
        fn () => ini_set('user_agent', '!'),
        fn () => Node::$made++,
    ];
    $sums = [$kernel->checksum()];
    foreach ($damage as $cause) {
        $cause();
        $sums[] = $kernel->checksum();
    }
    echo count($damage), ' changes, ', count(array_unique($sums)) - 1, ' seen ';
}

// ---- the request ends early ----

function fault_fat(): void
{
    // Not an exception: the engine leaves by longjmp, past everything.
    eval('class Twice {} class Twice {}');
}

function fault_inc(): void
{
    require __DIR__ . '/broken.php';
}

function fault_usr(Kernel $kernel): void
{
    array_map(fn ($node) => trigger_error('by the user', E_USER_ERROR), $kernel->nodes);
}

function fault_exc(Kernel $kernel): void
{
    throw new RuntimeException('nobody catches this ' . count($kernel->nodes));
}

function fault_mem(Kernel $kernel): void
{
    $kernel->services['more'] = [];
    for ($i = 0;; $i++) {
        $kernel->services['more'][] = ["small $i", [$i]];
    }
}

function fault_big(Kernel $kernel): void
{
    $kernel->huge = str_repeat($kernel->huge, 100);
}

function fault_dbl(Kernel $kernel): void
{
    while (true) {
        $kernel->huge .= $kernel->huge;
    }
}

function fault_rec(Kernel $kernel): void
{
    // Frames are memory as well.
    $deeper = function (int $depth) use (&$deeper): int {
        return $deeper($depth + 1) + 1;
    };
    $deeper(0);
}

function fault_tim(): void
{
    set_time_limit(1);
    while (true) {
        // Until the limit.
    }
}

function fault_ext(Kernel $kernel): void
{
    usort($kernel->nodes, function (Node $a, Node $b): int {
        array_walk($a->data, function (): void {
            (function (): void {
                exit('nested exit');
            })();
        });
        return 0;
    });
}

function fault_des(Kernel $kernel): void
{
    $kernel->ender->exits = true;
    exit('to the destructor: ');
}

function fault_sht(Kernel $kernel): void
{
    register_shutdown_function(function () use ($kernel): void {
        $kernel->texts = [];
        exit('shutdown exits');
    });
    exit('to shutdown: ');
}

function fault_out(Kernel $kernel): void
{
    ob_start(function (string $text) use ($kernel): string {
        $kernel->nodes = [];
        throw new LogicException('the callback fails');
    });
    echo 'never seen';
    ob_end_flush();
}

function fault_obx(Kernel $kernel): void
{
    ob_start(fn (string $text) => exit('callback exits'));
    echo 'buffered';
    ob_end_flush();
}

function fault_dth(Kernel $kernel): void
{
    // An exception out of a destructor at the end of the request.
    $GLOBALS['thrower'] = new class {
        public function __destruct()
        {
            throw new LogicException('the destructor fails');
        }
    };
}

function fault_dtf(Kernel $kernel): void
{
    // A fatal error in a destructor at the end of the request: the other destructors do not run.
    $GLOBALS['thrower'] = new class {
        public function __destruct()
        {
            eval('class Again {} class Again {}');
        }
    };
}

function fault_gen(Kernel $kernel): void
{
    // Ends while a generator runs, with an exception on its way.
    foreach ((function () use ($kernel) {
        try {
            yield from $kernel->generator;
        } finally {
            exit('generator exits');
        }
    })() as $key => $step) {
        if ($key > 3) {
            throw new LogicException('within a generator');
        }
    }
}

function fault_hdl(Kernel $kernel): void
{
    set_error_handler(function () use ($kernel): never {
        $kernel->services = [];
        exit('handler exits');
    });
    array_map(fn (Node $node) => $node->data['missing'], $kernel->nodes);
}

function fault_aut(): void
{
    spl_autoload_register(fn (string $class) => exit("loader exits for $class"), true, true);
    new MissingClass();
}

function fault_obn(): void
{
    ob_start();
    echo 'one ';
    ob_start(fn (string $text) => strtoupper($text));
    echo 'two ';
    ob_start();
    exit('three');
}

function fault_ssh(): void
{
    // The engine writes the session when all else is over.
    session_set_save_handler(new class extends SessionHandler {
        public function write(string $id, string $data): bool
        {
            exit;
        }
    });
    session_start();
    $_SESSION['value'] = str_repeat('v', 5_000);
}

// ---- a long answer, for clients that go away ----

function fault_lng(Kernel $kernel): void
{
    for ($i = 0; $i < 60; $i++) {
        echo str_repeat("line $i of a long answer\n", 5_000);
        $kernel->services["line $i"] = str_repeat('x', 1_000);
        flush();
    }
}

function fault_fin(Kernel $kernel): void
{
    // The client has everything; the worker goes on.
    echo 'finished';
    fastcgi_finish_request();
    $kernel->nodes = array_reverse($kernel->nodes);
    echo 'never seen';
}

function fault_igu(): void
{
    ignore_user_abort(true);
    fault_lng($GLOBALS['kernel']);
    set_error_handler(null);
    $GLOBALS['kernel']->texts[500] = 'after the client has gone';
}

// ---- opcache ----

function fault_rst(): void
{
    opcache_reset();
}

function fault_inv(): void
{
    opcache_invalidate(__DIR__ . '/edited_later.php', true);
}

function fault_all(): void
{
    // Many files: more than a small opcache holds. It restarts once enough of it is wasted.
    for ($i = 0; $i < 40; $i++) {
        $number = mt_rand(0, 399);
        if ($i < 5) {
            opcache_invalidate(__DIR__ . "/generated/file$number.php", true);
        }
        if ((require __DIR__ . "/generated/file$number.php")->value() !== "file $number") {
            echo "wrong file $number ";
        }
    }
}

// ---- memory ----

function fault_gcc(Kernel $kernel): void
{
    for ($i = 0; $i < 50; $i++) {
        $ring = new Node(1_000 + $i, [], Colour::Red);
        $ring->next = new Node(2_000 + $i, ['from' => $kernel->nodes[$i]], Colour::Red);
        $ring->next->next = $ring;
    }
    unset($ring);
    gc_collect_cycles();
    if ($kernel->nodes[0]->next === null || count($kernel->weak) !== 300) {
        echo 'the collector took too much ';
    }
}

function fault_fre(Kernel $kernel): void
{
    foreach (get_object_vars($kernel) as $name => $value) {
        if (!in_array($name, ['host', 'precision', 'environment'], true)) {
            unset($kernel->$name);
        }
    }
    Node::$registry = [];
    unset($GLOBALS['booted'], $GLOBALS['kernel'], $GLOBALS['edited_at_boot'], $value);
    gc_collect_cycles();
    // In the room that has become free.
    for ($i = 0; $i < 2_000; $i++) {
        $filling[] = str_repeat(chr(65 + $i % 26), $i);
    }
    exit('all freed');
}

function fault_hug(Kernel $kernel): void
{
    // Chunks that PHP has kept from an earlier request count, so the limit of the others is sometimes too low for this.
    ini_set('memory_limit', '256M');
    $kernel->huge = '';
    $blocks = [];
    for ($i = 0; $i < 6; $i++) {
        $blocks[] = str_repeat('h', 2_500_000 + 300_000 * $i);
    }
    array_splice($blocks, 1, 3);
    $kernel->huge = str_repeat('g', 5_000_000);
    $kernel->huge .= $kernel->huge;
    $kernel->huge = substr($kernel->huge, 0, 2_200_000);
    $kernel->texts['new'] = implode('', $blocks);
}

function fault_shr(Kernel $kernel): void
{
    ini_set('memory_limit', '256M');
    // The booted block itself: grown in place where there is room, cut where it stands.
    $kernel->huge .= str_repeat('more', 200_000);
    $stream = fopen('php://memory', 'w+');
    fwrite($stream, $kernel->huge);
    ftruncate($stream, 100);
    $kernel->files['memory'] = $stream;
}

function fault_fib(Kernel $kernel): void
{
    // Never finished.
    $GLOBALS['fiber'] = new Fiber(function () use ($kernel): void {
        foreach ($kernel->nodes as $node) {
            Fiber::suspend($node);
        }
    });
    for ($node = $GLOBALS['fiber']->start(); $node !== null && $node->number < 20;) {
        $node = $GLOBALS['fiber']->resume();
    }
}

function fault_wea(Kernel $kernel): void
{
    for ($i = 0; $i < 100; $i++) {
        $kernel->nodes[$i]->next = null;
        $kernel->weak[$kernel->nodes[$i]] = ['changed', $i];
        $kernel->weak[$GLOBALS['new'][] = new Node($i, [], Colour::Green)] = $kernel;
        $references[] = WeakReference::create($kernel->nodes[$i]);
    }
    array_splice($kernel->nodes, 50, 200);
    gc_collect_cycles();
}

function fault_ref(Kernel $kernel): void
{
    foreach ($kernel->nodes as $i => $node) {
        $GLOBALS["reference$i"] = &$node->data;
        $GLOBALS["reference$i"]['self'] = &$kernel->texts[60];
    }
    $kernel->texts[60] .= 'longer';
    $copy = &Node::$registry;
    $copy = ['replaced' => &$copy];
    unset($GLOBALS['reference3'], $kernel->nodes[3]);
    sort($kernel->texts);
}

function fault_cla(): void
{
    static $number = 0;
    $number++;
    eval("class Made$number extends Node { public static int \$own = 1; } enum Also$number { case One; }");
    class_alias('Node', 'Alias');
    define('DEFINED_LATER', Colour::Red);
    $made = "Made$number";
    $GLOBALS['made'] = new $made(1, [constant("Also$number::One"), DEFINED_LATER], Colour::Red);
    Node::$made += 10;
    spl_autoload_unregister(spl_autoload_functions()[0]);
    function_exists('made_by_eval') && made_by_eval();
}

function fault_gcd(Kernel $kernel): void
{
    gc_disable();
    for ($i = 0; $i < 12_000; $i++) {
        $ring = [$kernel];
        $ring[] = &$ring;
        unset($ring);
    }
    gc_enable();
    for ($i = 0; $i < 12_000; $i++) {
        $ring = new ArrayObject([$kernel->nodes[$i % 300]]);
        $ring[] = $ring;
    }
}

function fault_low(Kernel $kernel): void
{
    ini_set('memory_limit', '12M');
    ini_set('opcache.enable', '0');
    ini_set('zend.assertions', '0');
    ini_set('error_log', '/dev/null');
    require __DIR__ . '/edited_later.php';
    $kernel->texts['low'] = str_repeat('x', 500_000);
}

// ---- the world outside ----

function fault_nat(Kernel $kernel): void
{
    // Objects with memory of libraries, left over at the end.
    $document = new DOMDocument();
    $document->loadXML('<a><b>' . str_repeat('<c/>', 100) . '</b></a>');
    $kernel->services['document'] = $document;
    $kernel->services['database'] = new PDO('sqlite::memory:');
    $kernel->services['database']->exec('create table t (a); insert into t values (1)');
    $kernel->services['statement'] = $kernel->services['database']->query('select * from t');
    $kernel->services['pattern'] = preg_match('/(\d+)-' . mt_rand(0, 9_999) . '/', '12-3');
    $kernel->services['time'] = new DateTimeImmutable('2024-02-29', new DateTimeZone('Europe/Madrid'));
    $kernel->weak[$document] = $kernel;
}

function fault_flt(Kernel $kernel): void
{
    stream_filter_append($kernel->files['self'], 'string.rot13', STREAM_FILTER_READ);
    fread($kernel->files['self'], 8_000);
    stream_set_blocking($kernel->files['self'], false);
    flock($kernel->files['self'], LOCK_EX);
    stream_set_read_buffer($kernel->files['self'], 0);
}

function fault_cls(Kernel $kernel): void
{
    foreach ($kernel->files as $file) {
        fclose($file);
    }
    // Others take the numbers.
    for ($i = 0; $i < 5; $i++) {
        $kernel->files["new $i"] = fopen('/dev/null', 'r');
    }
}

function fault_see(Kernel $kernel): void
{
    fseek($kernel->files['self'], 100);
    ftruncate($kernel->files['memory'], 0);
    fread($kernel->files['self'], 10);
}

function fault_prc(): void
{
    $child = proc_open(['/bin/sh', '-c', 'read line; echo "child $line"'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
    fwrite($pipes[0], "answers\n");
    fclose($pipes[0]);
    echo trim(stream_get_contents($pipes[1])), ' ';
    proc_close($child);
}

function fault_exe(): void
{
    echo exec('echo executed'), ' ', trim((string) shell_exec('echo by the shell')), ' ';
}

function fault_pls(): void
{
    // Left running when the request ends.
    $GLOBALS['child'] = proc_open(['/bin/sleep', '0.01'], [['pipe', 'r'], ['pipe', 'w']], $GLOBALS['pipes']);
}

function fault_ses(): void
{
    session_id(bin2hex(random_bytes(16)));
    session_start();
    $_SESSION['value'] = $_GET['v'];
    if (mt_rand(0, 1)) {
        exit('left open');
    }
}

function fault_pst(): void
{
    echo 'posted ', md5(json_encode($_POST) . file_get_contents('php://input')), ' ';
}

function fault_upl(): void
{
    foreach ($_FILES as $name => $file) {
        echo "$name ", md5_file($file['tmp_name']), ' ';
    }
}

function fault_dis(): void
{
    Slipstream\discard();
}

function fault_twi(): void
{
    // Where it has no business.
    if (restore_state()) {
        echo 'restored in the middle ';
    }
    try {
        snapshot_state();
    } catch (Slipstream\SnapshotException) {
        // In a booted request.
    }
}
