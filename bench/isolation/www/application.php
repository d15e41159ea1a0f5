<?php
/** An application that keeps what it learns of a user wherever PHP lets it. Nothing of that may reach the next request. */

final class Container
{
    /** @var array<string, object> */
    private array $services = [];
    public ?User $current = null;
    public int $hits = 0;

    public function get(string $class): object
    {
        return $this->services[$class] ??= new $class($this);
    }

    /** What is in it, by name. */
    public function names(): array
    {
        return array_keys($this->services);
    }
}

final class User
{
    public static ?User $last = null;
    public static array $seen = [];

    public function __construct(public readonly string $name, public array $secrets)
    {
    }
}

/** A service that caches the user, as careless ones do. */
class Profile
{
    public array $cache = [];
    public static int $asked = 0;
    private ?Closure $remember = null;

    public function __construct(private Container $container)
    {
    }

    public function remember(User $user): void
    {
        self::$asked++;
        $this->cache[$user->name] = implode(' ', $user->secrets);
        $this->remember = fn () => $user;
        $this->container->current = $user;
    }
}

final class Log
{
    public array $lines = [];
    public ?Throwable $error = null;
    public string $buffer;

    public function __construct()
    {
        $this->buffer = str_repeat(' ', 20_000);
    }
}

/** As a session of its own: what a user has put in, by identifier. */
final class Sessions
{
    public array $open = [];
    public WeakMap $owners;
    public SplObjectStorage $objects;
    public Generator $stream;
    public ArrayObject $list;
    public SplFixedArray $fixed;

    public function __construct()
    {
        $this->owners = new WeakMap();
        $this->objects = new SplObjectStorage();
        $this->list = new ArrayObject();
        $this->fixed = new SplFixedArray(4);
        $this->stream = (function () {
            $all = ['booted'];
            while (true) {
                $all[] = yield implode(' ', $all);
            }
        })();
        $this->stream->current();
    }
}

function count_calls(?string $remember = null): int
{
    static $calls = 0;
    static $kept = [];
    if ($remember !== null) {
        $kept[] = $remember;
    }
    return ++$calls + count($kept);
}

trait Counts
{
    private static int $count = 0;

    public static function count(): int
    {
        return ++self::$count;
    }
}

final class Left
{
    use Counts;
}

final class Right
{
    use Counts;
}

function boot(): Container
{
    ini_set('user_agent', 'booted agent');
    ini_set('precision', '12');
    date_default_timezone_set('Asia/Tokyo');
    setlocale(LC_ALL, 'C');
    putenv('BOOTED=yes');
    set_error_handler(fn (int $number, string $message) => true);
    spl_autoload_register(function (string $class): void {
        if (str_starts_with($class, 'Made')) {
            eval("class $class { public static \$value = 'made'; }");
        }
    });
    register_shutdown_function(function (): void {
        echo "\nshutdown of the boot";
    });
    $container = new Container();
    foreach ([Profile::class, Log::class, Sessions::class] as $class) {
        $container->get($class);
    }
    $GLOBALS['counter'] = function (?string $value = null): int {
        static $calls = 0;
        static $last = 'none';
        $last = $value ?? $last;
        return ++$calls;
    };
    $GLOBALS['settings'] = ['theme' => 'plain', 'visitors' => []];
    return $container;
}

/** Everything that an earlier request could have changed, as it is now. */
function state(Container $container): array
{
    $sessions = $container->get(Sessions::class);
    $log = $container->get(Log::class);
    $functions = get_defined_functions()['user'];
    $classes = array_filter(get_declared_classes(), fn ($class) => (new ReflectionClass($class))->isUserDefined() && $class[0] !== 'c');
    return [
        'container' => [$container->names(), $container->current, $container->hits],
        'user' => [User::$last, User::$seen],
        'profile' => [$container->get(Profile::class)->cache, Profile::$asked],
        'log' => [$log->lines, $log->error, md5($log->buffer)],
        'sessions' => [$sessions->open, count($sessions->owners), count($sessions->objects), count($sessions->list), $sessions->fixed->toArray(), $sessions->stream->current()],
        'settings' => $GLOBALS['settings'],
        'globals' => array_keys($GLOBALS),
        'ini' => array_map('ini_get', ['user_agent', 'precision', 'memory_limit', 'session.name', 'default_charset', 'include_path', 'error_reporting']),
        'process' => [date_default_timezone_get(), setlocale(LC_ALL, '0'), getcwd(), umask(), error_reporting(), mb_internal_encoding(), mb_language()],
        'environment' => [getenv('BOOTED'), getenv('KEPT')],
        'declared' => [count($functions), count($classes), count(get_defined_constants(true)['user'] ?? []), count(get_included_files())],
        'handlers' => [count(spl_autoload_functions()), in_array('kept', stream_get_wrappers(), true), libxml_use_internal_errors(), assert_options(ASSERT_ACTIVE)],
        'output' => [ob_get_level(), headers_list() === [] ? 'none' : preg_grep('/^X-Powered-By|^Content-type/i', headers_list(), PREG_GREP_INVERT), http_response_code()],
        'error' => error_get_last(),
        'session' => [session_status(), session_id(), isset($_SESSION)],
        'json' => [json_last_error(), preg_last_error()],
    ];
}

/** Answers, and leaves as much as possible of the user behind. */
function handle(Container $container): void
{
    $state = state($container);
    $counts = ['function' => count_calls(), 'closure' => $GLOBALS['counter'](), 'left' => Left::count(), 'right' => Right::count(), 'hits' => ++$container->hits];
    $own = 'SECRET' . bin2hex(random_bytes(12));
    header("X-Own: $own");
    $secrets = ['own' => $own, 'body' => file_get_contents('php://input')];
    array_walk_recursive($_GET, function (string $value, string $key) use (&$secrets): void { $secrets["get $key"] = $value; });
    array_walk_recursive($_POST, function (string $value, string $key) use (&$secrets): void { $secrets["post $key"] = $value; });
    array_walk_recursive($_COOKIE, function (string $value, string $key) use (&$secrets): void { $secrets["cookie $key"] = $value; });
    foreach ($_SERVER as $name => $value) {
        if (is_string($value) && str_contains($value, 'SECRET')) {
            $secrets["server $name"] = $value;
        }
    }
    foreach ($_FILES as $name => $file) {
        $secrets["file $name"] = file_get_contents($file['tmp_name']);
    }
    $user = new User($_COOKIE['who'] ?? 'nobody', $secrets);
    if (isset($_COOKIE['SESSION'])) {
        session_name('SESSION');
        session_start();
        $session = $_SESSION;
        $_SESSION['secret'] ??= $_GET['s'] ?? $own;
        $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
    }
    $answer = ['state' => $state, 'counts' => $counts, 'user' => $user, 'session' => $session ?? null];
    echo json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR);
    leave($container, $user, $own);
    match ($_GET['k'] ?? '') {
        '1' => throw new RuntimeException("failed for $user->name with $own"),
        '2' => exit('ended early'),
        '3' => eval('class Twice {} class Twice {}'),
        default => null,
    };
}

function leave(Container $container, User $user, string $own): void
{
    $all = implode(' ', array_map('strval', $user->secrets));
    User::$last = $user;
    User::$seen[$own] = $user;
    $container->get(Profile::class)->remember($user);
    $log = $container->get(Log::class);
    $log->lines[] = "seen $all";
    $log->error = new LogicException($own, 0, new Exception($all));
    // In place, in memory of the image.
    for ($i = 0; $i < 100; $i++) {
        $log->buffer = substr_replace($log->buffer, $own, $i * 150, strlen($own));
    }
    $log->buffer[5] = 'x';
    $sessions = $container->get(Sessions::class);
    $sessions->open[$own] = $all;
    $sessions->owners[$user] = $own;
    $sessions->owners[$container] = $own;
    $sessions->objects[$user] = $all;
    $sessions->list[$own] = $user;
    $sessions->fixed[1] = $own;
    $sessions->stream->send($own);
    count_calls($own);
    ($GLOBALS['counter'])($own);
    Left::count();
    $GLOBALS['settings']['visitors'][] = $own;
    $GLOBALS["visitor_$own"] = $all;
    $GLOBALS['container']->dynamic ?? null;
    ini_set('user_agent', $own);
    ini_set('precision', '5');
    ini_set('memory_limit', '200M');
    ini_set('include_path', "/nowhere/$own");
    ini_set('default_charset', $own);
    date_default_timezone_set('Europe/Paris');
    setlocale(LC_ALL, 'C.UTF-8');
    mb_internal_encoding('ISO-8859-1');
    error_reporting(E_ERROR);
    putenv("KEPT=$own");
    putenv('BOOTED=no');
    umask(0077);
    chdir('/');
    libxml_use_internal_errors(true);
    define("SEEN_$own", $all);
    eval("class Made$own { public static \$value = '$own'; } function made_$own() { return '$own'; }");
    stream_wrapper_register('kept', User::class);
    spl_autoload_register(fn (string $class) => $own === $class);
    set_error_handler(fn () => $own);
    set_exception_handler(fn (Throwable $error) => print("\nhandled"));
    json_decode("{ $own");
    preg_match('/(*LIMIT_MATCH=1)a+b+c+/', "aaa $own");
    @trigger_error($own, E_USER_NOTICE);
    register_shutdown_function(function () use ($own): void {
        echo "\nshutdown of $own";
    });
    header("X-Kept: $own");
    ob_start();
    echo "\nbuffered";
}
