<?php
/** The cases: what a file says about itself, how it is run, and what counts as right. */

namespace Check;

/** A PHP that is not here; the message says why. */
final class Unusable extends \RuntimeException
{
}

final class Counts
{
    public int $passed = 0;
    public int $failed = 0;
    public int $skipped = 0;

    public function pass(string $name): void
    {
        $this->passed++;
        echo "ok $name\n";
    }

    public function skip(string $name, string $reason): void
    {
        $this->skipped++;
        echo "skip $name: $reason\n";
    }

    /** Only the first line of $problem stands beside the name. */
    public function fail(string $name, string $problem, string $logs = ''): void
    {
        $this->failed++;
        echo "not ok $name: ", rtrim(str_replace("\n", "\n#   ", rtrim($problem))), "\n";
        $lines = array_slice(array_filter(explode("\n", $logs), fn ($line) => trim($line) !== ''), -LOG_LINES);
        foreach ($lines as $line) {
            echo "#   log: $line\n";
        }
    }
}

/** The roots of fixtures/roots with the PHP that the machine itself does not have. */
const ROOTS = ['8.4' => 'php', '8.5' => 'php8.5'];

/** What a visitor sends that nobody else may see; nothing like it stands in a file that PHP reads in these tests. */
const SECRET = 'kiwi-5f2a9c71e0';

/** How much of a log is shown with a failure. */
const LOG_LINES = 15;

/** How many lines of a difference are shown. */
const DIFFERENCE_LINES = 12;

/**
 * One file of state/ or refused/, or a .phpt file. Comments at its top, one `// KEY: VALUE` per line, say how it is run:
 *
 *   needs: EXTENSION | php>=8.4 | sapi=fpm    several by commas; the case is skipped where one is missing. `so=NAME`: it only has
 *                                             to be installed, the case loads it
 *   ini: NAME=VALUE                           a setting of its worker
 *   start: NAME=VALUE                         a setting that PHP heeds only while it starts, before there are workers: the case has
 *                                             a server of its own. `{tests}` is this folder as PHP sees it
 *   query: a=b                                each such line is one more way to ask for it
 *   errors: WHY                               PHP's own messages (warnings and the like) are a part of the answer
 *   unordered: WHY                            what comes after the report may come in any order of lines
 *   discards: a=b                             a request asked for in this way drops the image, so the next one boots
 *   send: HEADER: VALUE                       (refused) a header of every request; `send: Cookie: a={secret}`
 *   post: a=b                                 (refused) the body of every request
 *   expect: PATTERN                           (refused) must occur in the message, in upper or lower case; %s any text, %d a number.
 *   ask: a={secret}                           (refused) more in the query
 *   expect a b: PATTERN                       the same when asked with the query a=b
 *
 * `{secret}` stands for a value that is in no file: what PHP has read to compile a script may still be in its memory, and
 * a value that stands there would be found for the wrong reason. So no `a=b` in the line above, either, and the first
 * `query` has at most three characters as its value. `{secret64}` is `user:{secret}` in base64. No message may show it.
 */
final class TestCase
{
    public readonly Application $application;
    /** @var list<string> */
    private array $needs = [];
    /** @var list<string> */
    private array $queries = [];
    /** @var list<string> */
    private array $headers = [];
    private string $post = '';
    private string $ask = '';
    public bool $has_errors = false;
    public bool $unordered = false;
    private ?string $discards = null;
    /** @var list<string> settings of the whole server, which no other case shares then */
    public array $start = [];
    /** @var array<string, list<string>> query => patterns */
    private array $expected = [];

    public function __construct(string $file, public readonly string $script)
    {
        $settings = [];
        // A .phpt file begins otherwise: it says these things to PHP's own runner.
        foreach (array_slice((array) file($file, FILE_IGNORE_NEW_LINES), 1) as $line) {
            if (!str_starts_with($line, '//')) {
                break;
            }
            if (!preg_match('~^// (needs|ini|start|query|errors|unordered|discards|send|post|ask|expect)(?: (\w+) (\w+))?: (.+)$~', $line, $match)) {
                continue;
            }
            [, $key, $name, $choice, $value] = str_replace(['{secret}', '{secret64}'], [SECRET, base64_encode('user:' . SECRET)], $match);
            match ($key) {
                'needs' => array_push($this->needs, ...array_map('trim', explode(',', $value))),
                'ini' => $settings[] = $value,
                'start' => $this->start[] = $value,
                'query' => $this->queries[] = $value,
                'errors' => $this->has_errors = true,
                'unordered' => $this->unordered = true,
                'discards' => $this->discards = $value,
                'send' => $this->headers[] = $value,
                'post' => $this->post = $value,
                'ask' => $this->ask = $value,
                'expect' => $this->expected[$name === '' ? '' : "$name=$choice"][] = $value,
            };
        }
        $this->application = new Application($script, $settings);
    }

    public function is_refusal(): bool
    {
        return str_starts_with($this->script, 'refused/');
    }

    public function is_phpt(): bool
    {
        return !str_contains($this->script, '/');
    }

    /**
     * Why the case cannot run with this PHP; null if it can.
     *
     * @param array{version: int, extensions: list<string>, installed: list<string>} $info
     */
    public function why_not(array $info, string $sapi, bool $extension): ?string
    {
        foreach ($this->needs as $need) {
            if (preg_match('/^php>=(\d+)\.(\d+)$/', $need, $match)) {
                if ($info['version'] < $match[1] * 10_000 + $match[2] * 100) {
                    return "needs PHP $match[1].$match[2]";
                }
            } elseif (str_starts_with($need, 'sapi=')) {
                if ($need !== "sapi=$sapi") {
                    return 'only for ' . substr($need, 5);
                }
            } elseif (str_starts_with($need, 'so=')) {
                if (!in_array(substr($need, 3), $info['installed'], true)) {
                    return substr($need, 3) . ' is not installed for this PHP';
                }
            } elseif (!in_array(strtolower($need), $info['extensions'], true)) {
                return "PHP has no extension $need";
            }
        }
        if ($extension) {
            return null;
        }
        return $this->is_refusal() ? 'the polyfill refuses nothing' : ($this->is_phpt() ? 'needs the extension' : null);
    }

    /** @return list<Request> the different requests by which state is observed; the first one takes the snapshot */
    public function variants(): array
    {
        $requests = [
            new Request(
                'GET with query and cookies',
                'GET',
                '/?q=quince-7301&n[]=one&n[k]=two',
                ['Cookie: basket=fig-88217; theme=dark-olive', 'X-Trace: trace-551870'],
            ),
            new Request('bare GET', 'GET', '/'),
            Request::form(
                'POST of a form',
                '/?q=medlar-4410',
                ['name' => 'Ada Quill', 'text' => str_repeat('long text ', 2_000)],
                ['Cookie: basket=plum-30992'],
            ),
            Request::upload('upload', '/', ['note' => 'with files'], [
                'small' => ['small.txt', 'a small file'],
                'large' => ['large.txt', str_repeat('0123456789abcdef', 10_000)],
            ]),
            new Request(
                'PUT of JSON',
                'PUT',
                '/?q=' . rawurlencode('später & mehr'),
                ['Content-Type: application/json', 'X-Trace: trace-99'],
                '{"json": [1, 2, 3]}',
            ),
        ];
        $queries = $this->queries ?: [''];
        $number = count($requests) * count($queries);
        $variants = [];
        for ($i = 0; $i < $number; $i++) {
            // By rows and columns at once, so that the first few already show each of both.
            $query = $queries[($i + intdiv($i, count($requests))) % count($queries)];
            $variants[] = $requests[$i % count($requests)]->to($this->application->path, $query);
        }
        return $variants;
    }

    /** @return list<array{Request, list<string>}> what is asked, and the patterns of the refusal */
    public function refusals(): array
    {
        if ($this->expected === []) {
            throw new \LogicException("$this->script expects nothing");
        }
        $asked = [];
        foreach ($this->expected as $query => $patterns) {
            $headers = $this->headers;
            if ($this->post !== '') {
                $headers[] = 'Content-Type: application/x-www-form-urlencoded';
            }
            $request = new Request('request', $this->post === '' ? 'GET' : 'POST', '/', $headers, $this->post);
            $asked[] = [$request->to($this->application->path, trim("$query&$this->ask", '&')), $patterns];
        }
        return $asked;
    }

    public function discards(Request $request): bool
    {
        return $this->discards !== null && str_contains($request->target, $this->discards);
    }
}

/**
 * @param list<string> $names
 * @return list<TestCase>
 * @throws \DomainException if one of the names belongs to no case
 */
function find_cases(string $folder, array $names): array
{
    $cases = [];
    $unknown = array_flip($names);
    foreach (['state', 'refused'] as $kind) {
        foreach (glob("$folder/$kind/*.php") as $file) {
            $name = basename($file, '.php');
            if ($names === [] || in_array($name, $names, true) || in_array("$kind/$name", $names, true)) {
                $cases[] = new TestCase($file, "$kind/$name");
                unset($unknown[$name], $unknown["$kind/$name"]);
            }
        }
    }
    foreach (glob("$folder/*.phpt") as $file) {
        $name = basename($file, '.phpt');
        if ($names === [] || in_array($name, $names, true)) {
            $cases[] = new TestCase($file, $name);
            unset($unknown[$name]);
        }
    }
    if ($unknown !== []) {
        throw new \DomainException('no case is called ' . array_key_first($unknown));
    }
    return $cases;
}

/** How PHP shows an error, warning or notice. */
const PHP_MESSAGE = '/^(Fatal error|Parse error|Recoverable fatal error|Warning|Notice|Deprecated): /';

/** Headers that differ from one answer to the next for reasons of their own. */
const OWN_HEADERS = '/^(date|connection|transfer-encoding|content-length|keep-alive|server):/i';

/**
 * Asks an application that boots every time and one that is restored, and compares the answers.
 *
 * @return string|null what is wrong
 */
function check_state(TestCase $case, Server $reference, Server $tested, int $restores, bool $extension): ?string
{
    $variants = $case->variants();
    $expected = [];
    $worker = null;
    $should = new Expectation();
    $number = 1 + max($restores, 2 * count($variants));
    try {
        // No snapshot is taken while opcache does not hold the script.
        $tested->send($case->application, $variants[0]);
    } catch (ServerError $error) {
        return 'before the first request: ' . $error->getMessage();
    }
    for ($i = 0; $i < $number; $i++) {
        $which = $i % count($variants);
        $request = $variants[$which];
        try {
            if (!isset($expected[$which])) {
                $expected[$which] = flatten($reference->send($case->application, $request), $case->unordered)[0];
                $again = flatten($reference->send($case->application, $request), $case->unordered)[0];
                if ($expected[$which] !== $again) {
                    return "the case is not deterministic ($request->label)\n" . difference($expected[$which], $again);
                }
                $errors = preg_grep(PHP_MESSAGE, $again);
                if ($errors !== [] && !$case->has_errors) {
                    return "PHP complains about the case itself ($request->label)\n" . implode("\n", $errors);
                }
            }
        } catch (ServerError $error) {
            return "reference, $request->label: " . $error->getMessage();
        }
        $place = 'request ' . ($i + 1) . " ($request->label)";
        try {
            [$lines, $status] = flatten($tested->send($case->application, $request), $case->unordered);
        } catch (ServerError $error) {
            return "$place: " . $error->getMessage();
        }
        if ($status === null) {
            return "$place: no status\n" . implode("\n", array_slice($lines, 0, DIFFERENCE_LINES));
        }
        $worker ??= $status['pid'];
        if ($worker !== $status['pid']) {
            return "$place: the worker has been replaced";
        }
        $problem = $extension ? $should->next($status, $case->discards($request), !in_array($request->method, ['GET', 'HEAD'], true)) : null;
        if ($lines !== $expected[$which]) {
            return "$place: the answer differs" . ($problem === null ? '' : "; $problem") . "\n"
                . difference($expected[$which], $lines);
        }
        if ($problem !== null) {
            return "$place: $problem";
        }
    }
    return null;
}

/** What the status of one worker has to be, request by request. */
final class Expectation
{
    private bool $image = false;
    private int $snapshots = 0;
    private int $restores = 0;

    /**
     * @param array<string, mixed> $status as the next request of the worker reported it
     * @return string|null what is wrong
     */
    public function next(array $status, bool $discards, bool $has_body): ?string
    {
        $restored = $this->image;
        if ($restored) {
            $this->restores++;
        } elseif (!$has_body) {
            // A request with a body boots, but is not saved.
            $this->snapshots++;
            $this->image = true;
        }
        $this->image = $this->image && !$discards;
        $wrong = match (true) {
            !$status['enabled'] => 'the extension is off',
            $status['restored'] && !$restored => 'it was restored',
            !$status['restored'] && $restored => 'it was not restored',
            $status['restores'] !== $this->restores => "there should be $this->restores restores",
            $status['snapshots'] !== $this->snapshots => "there should be $this->snapshots snapshots",
            $status['image'] === null && $this->image => 'there is no image',
            default => null,
        };
        return $wrong === null ? null : "$wrong: " . json_encode($status);
    }
}

/**
 * @return array{list<string>, array<string, mixed>|null} what is compared, line by line, and the status taken out of it
 */
function flatten(Response $response, bool $unordered): array
{
    $headers = preg_grep(OWN_HEADERS, $response->headers, PREG_GREP_INVERT);
    $parts = preg_split('/\n#status (.*)\n/', $response->body, 2, PREG_SPLIT_DELIM_CAPTURE);
    [$before, $status, $after] = $parts + [1 => 'null', 2 => ''];
    $after = explode("\n", $after);
    if ($unordered) {
        sort($after);
    }
    return [[$response->status, ...array_values($headers), '', ...explode("\n", $before), ...$after], json_decode($status, true)];
}

/**
 * @param list<string> $expected
 * @param list<string> $found
 */
function difference(array $expected, array $found): string
{
    $start = 0;
    while (isset($expected[$start], $found[$start]) && $expected[$start] === $found[$start]) {
        $start++;
    }
    $text = '';
    for ($i = max(0, $start - 2); $i < $start; $i++) {
        $text .= '  ' . shorten($expected[$i]) . "\n";
    }
    foreach (['-' => $expected, '+' => $found] as $sign => $lines) {
        foreach (array_slice($lines, $start, intdiv(DIFFERENCE_LINES, 2)) as $line) {
            $text .= "$sign " . shorten($line) . "\n";
        }
    }
    return $text . '(- is the application that boots, + the restored one)';
}

function shorten(string $line): string
{
    return strlen($line) > 200 ? substr($line, 0, 200) . ' ...' : $line;
}

/**
 * Every snapshot of the case must be refused, twice in the same worker, and the request must go on.
 *
 * @return string|null what is wrong
 */
function check_refusal(TestCase $case, Server $tested): ?string
{
    $worker = null;
    $problems = [];
    $asked = $case->refusals();
    try {
        // So that opcache holds the script.
        $tested->send($case->application, $asked[0][0]);
    } catch (ServerError $error) {
        return 'before the first request: ' . $error->getMessage();
    }
    foreach ($asked as [$request, $patterns]) {
        foreach (['first', 'second'] as $time) {
            try {
                $body = $tested->send($case->application, $request)->body;
                // What the first request left in memory may be the reason the second time.
                $problem = wrong_answer($body, $time === 'first' ? $patterns : [], $worker);
            } catch (ServerError $error) {
                $problem = $error->getMessage();
            }
            if ($problem !== null) {
                $problems[] = "$time $request->label: $problem";
                break;
            }
        }
    }
    if (count($problems) > 1) {
        array_unshift($problems, count($problems) . ' of ' . count($asked) . ' are wrong');
    }
    return $problems === [] ? null : implode("\n", $problems);
}

/**
 * @param list<string> $patterns
 * @param int|null $worker the process that has answered so far
 */
function wrong_answer(string $body, array $patterns, ?int &$worker): ?string
{
    if (!preg_match('/^#refused (.*)$/m', $body, $match)) {
        return "it did not go on\n" . implode("\n", array_slice(explode("\n", $body), 0, DIFFERENCE_LINES));
    }
    $answer = json_decode($match[1], true);
    if (preg_match(PHP_MESSAGE . 'm', $body)) {
        return "PHP complains about the case itself\n$body";
    }
    $worker ??= $answer['pid'];
    if ($worker !== $answer['pid']) {
        $worker = $answer['pid'];
        return 'the worker has been replaced';
    }
    return wrong_refusal($answer, $patterns);
}

/**
 * @param array<string, mixed> $answer
 * @param list<string> $patterns
 */
function wrong_refusal(array $answer, array $patterns): ?string
{
    // What depends on the request alone does not throw.
    $message = $answer['message'] ?? $answer['status']['last_refusal'];
    if ($message === null) {
        return 'it was not refused: ' . json_encode($answer['status']);
    }
    foreach ($patterns as $pattern) {
        $regex = strtr(preg_quote($pattern, '~'), ['%s' => '.*', '%a' => '.*', '%d' => '\d+']);
        if (!preg_match("~$regex~is", $message)) {
            return "the message has no \"$pattern\": $message";
        }
    }
    if (str_contains($message, SECRET)) {
        return "the message shows the secret: $message";
    }
    if ($answer['status']['image'] !== null || $answer['status']['snapshots'] !== 0) {
        return 'an image was kept: ' . json_encode($answer['status']);
    }
    // Where the extension is off there is nothing to refuse.
    return !$answer['status']['enabled'] || array_sum($answer['status']['refusals']) > 0 ? null : 'it was not counted: ' . json_encode($answer['status']);
}

/**
 * Has PHP's own runner run .phpt files.
 *
 * @param list<TestCase> $cases
 * @param list<string> $settings
 */
function run_phpt(Workshop $workshop, array $cases, array $settings, Counts $counts): void
{
    $output = $workshop->run_tests(array_column($cases, 'script'), $settings);
    foreach ($cases as $case) {
        $place = '\[\S*/' . preg_quote("$case->script.phpt", '~') . '\]';
        if (!preg_match("~\\b(PASS|SKIP|FAIL|BORK|WARN|LEAK|XFAIL)\\b .*$place(.*)~", $output, $match)) {
            $counts->fail("cli $case->script", "the runner says nothing of it\n$output");
        } elseif ($match[1] === 'PASS') {
            $counts->pass("cli $case->script");
        } elseif ($match[1] === 'SKIP') {
            $counts->skip("cli $case->script", trim(str_replace('reason:', '', $match[2])));
        } else {
            $counts->fail("cli $case->script", "$match[1]$match[2]\n" . $workshop->difference($case->script));
        }
    }
}

/** The temporary folder of a run, with everything that PHP has to see, and the servers in it. */
final class Workshop
{
    private string $home = '';
    private string $base = '';
    private string $inside;
    /** @var list<string> */
    private array $prefix = [];
    private string $php;
    private string $php_fpm;
    /** @var resource */
    private $listener;

    /** @throws Unusable if there is no such PHP here */
    public function __construct(
        string $version,
        public readonly string $extension,
        private bool $validate_timestamps,
        private bool $keep,
    ) {
        if ($version !== '8.2') {
            $roots = dirname(__DIR__, 3) . '/fixtures/roots/roots';
            $root = ROOTS[$version];
            exec(escapeshellarg($roots) . " path $root 2>&1", $output, $code);
            if ($code !== 0) {
                throw new Unusable($output[0] ?? 'the root of PHP cannot be found');
            }
            if (posix_geteuid() !== 0) {
                throw new Unusable("PHP $version is in a root, and chroot needs root");
            }
            $this->base = $output[0];
            // With /proc, because the extension reads the maps of its own process.
            $this->prefix = [$roots, 'run', $root, '--proc', '--'];
        }
        $this->php = getenv('SLIP_PHP') ?: "php$version";
        $this->php_fpm = getenv('SLIP_PHP_FPM') ?: "php-fpm$version";
        if ($extension !== '' && !is_file($extension)) {
            throw new Unusable("there is no $extension");
        }
        do {
            // Short: the path of a socket below it has at most 107 bytes, the root and the home directory's name included.
            $this->inside = '/tmp/slip-' . bin2hex(random_bytes(4));
        } while (!@mkdir($this->base . $this->inside, 0755));
        $this->home = $this->base . $this->inside;
        foreach (['lib', 'state', 'refused', 'fixtures'] as $folder) {
            copy_folder(dirname(__DIR__) . "/$folder", "$this->home/tests/$folder");
        }
        foreach (glob(dirname(__DIR__) . '/*.phpt') as $file) {
            copy($file, "$this->home/tests/" . basename($file));
        }
        if ($extension !== '') {
            copy($extension, "$this->home/slipstream.so");
        }
        // For cases that need a connection: it is never accepted, the system's queue is enough.
        $context = stream_context_create(['socket' => ['backlog' => 511]]);
        $this->listener = stream_socket_server('tcp://127.0.0.1:0', $n, $m, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context);
    }

    /**
     * @return array{version: int, extensions: list<string>, installed: list<string>}
     * @throws Unusable if it is not there
     * @throws ServerError if it does not run, or not as the cases need it
     */
    public function ask_info(): array
    {
        $this->must_run($this->php);
        $application = new Application('lib/info', []);
        $server = $this->server('cli-server', 'info', [$application], $this->extension !== '', []);
        $body = $server->send($application, new Request('info', 'GET', $application->path))->body;
        $logs = $server->logs($application);
        $server->stop();
        $info = json_decode($body, true);
        if (!is_array($info)) {
            throw new ServerError("PHP does not answer: $body\n$logs");
        }
        if (!$info['opcache']) {
            throw new Unusable("$this->php has no opcache");
        }
        if ($this->extension !== '' && $info['status'] === null) {
            throw new ServerError("PHP does not load the extension: $logs");
        }
        if ($this->extension !== '' && !$info['status']['enabled']) {
            throw new ServerError('the extension is off: ' . json_encode($info['status']));
        }
        return $info;
    }

    /**
     * The output of PHP's run-tests.php.
     *
     * @param list<string> $names of .phpt files, without the ending
     * @param list<string> $settings
     * @throws Unusable if PHP came without it
     */
    public function run_tests(array $names, array $settings): string
    {
        // It belongs to PHP's headers: .../lib/php/API/build.
        $code = 'echo PHP_EXTENSION_DIR, "/build/run-tests.php", "\n", PHP_BINARY;';
        [$runner, $php] = explode("\n", $this->output_of([$this->php, '-n', '-r', $code]));
        if (!is_file("$this->base$runner")) {
            throw new Unusable("there is no $runner: it comes with PHP's headers");
        }
        $command = [$this->php, $runner, '-q', '--offline', '--no-color', '-p', $php];
        foreach (["extension=$this->inside/slipstream.so", 'opcache.enable_cli=1', ...$settings] as $setting) {
            array_push($command, '-d', $setting);
        }
        foreach ($names as $name) {
            $command[] = "$this->inside/tests/$name.phpt";
        }
        return $this->output_of($command);
    }

    /** What run-tests.php wrote about a failure. */
    public function difference(string $name): string
    {
        return (string) @file_get_contents("$this->home/tests/$name.diff");
    }

    /** @param list<string> $command */
    private function output_of(array $command): string
    {
        $log = "$this->home/output-" . bin2hex(random_bytes(4));
        $process = new Process([...$this->prefix, ...$command], $log, $this->home);
        while ($process->running()) {
            usleep(POLL_US);
        }
        return (string) file_get_contents($log);
    }

    private function must_run(string $program): void
    {
        $command = implode(' ', array_map('escapeshellarg', [...$this->prefix, $program, '-v']));
        exec("$command 2>&1", $output, $code);
        if ($code !== 0) {
            throw new Unusable("$program does not run: " . ($output[0] ?? "exit code $code"));
        }
    }

    /**
     * @param list<TestCase> $cases
     * @param list<string> $settings
     * @throws Unusable
     * @throws ServerError
     */
    public function start(string $sapi, string $name, array $cases, bool $extension, array $settings): Server
    {
        $settings = str_replace('{tests}', "$this->inside/tests", $settings);
        if ($sapi === 'fpm') {
            $this->must_run($this->php_fpm);
            exec('nginx -v 2>&1', $output, $code);
            if ($code !== 0) {
                throw new Unusable('nginx is not installed');
            }
        }
        return $this->server($sapi, $name, array_column($cases, 'application'), $extension, $settings);
    }

    /**
     * @param list<Application> $applications
     * @param list<string> $settings
     */
    private function server(string $sapi, string $name, array $applications, bool $extension, array $settings): Server
    {
        $settings = [
            'display_errors=1',
            'display_startup_errors=1',
            'html_errors=0',
            'log_errors=1',
            'error_reporting=32767',
            'opcache.enable=1',
            'opcache.enable_cli=1',
            'opcache.validate_timestamps=' . (int) $this->validate_timestamps,
            'opcache.revalidate_freq=0',
            // The files are new, and opcache would not take them yet.
            'opcache.file_update_protection=0',
            $extension ? "extension=$this->inside/slipstream.so" : "auto_prepend_file=$this->inside/tests/lib/polyfill.php",
            ...$settings,
        ];
        $place = new Place($this->home, $this->inside, $this->prefix, $this->php, $this->php_fpm, $settings);
        $port = explode(':', stream_socket_get_name($this->listener, false))[1];
        return $sapi === 'fpm' ? new Fpm($place, $name, $port, $applications) : new CliServer($place, $name, $port);
    }

    public function __destruct()
    {
        if ($this->home !== '' && !$this->keep) {
            delete_folder($this->home);
        }
    }
}

function copy_folder(string $from, string $to): void
{
    mkdir($to, 0755, true);
    foreach (scandir($from) as $name) {
        if ($name[0] === '.') {
            continue;
        }
        is_dir("$from/$name") ? copy_folder("$from/$name", "$to/$name") : copy("$from/$name", "$to/$name");
    }
}

function delete_folder(string $folder): void
{
    foreach (scandir($folder) as $name) {
        if ($name === '.' || $name === '..') {
            continue;
        }
        $path = "$folder/$name";
        is_dir($path) && !is_link($path) ? delete_folder($path) : unlink($path);
    }
    rmdir($folder);
}
