<?php
/** A user of its own, and a database in which other things are. */
const LOGIN = ['booted', 'secret-of-booted'];
const DATABASE = 7;

/** A client of Redis as small as one can be: like Predis and credis it speaks the protocol itself, over a stream. */
final class SmallClient
{
    /** @var resource */
    private $stream;

    /** @param array<string, mixed> $tls options of TLS */
    public function __construct(string $address, array $tls = [])
    {
        $context = $tls ? stream_context_create(['ssl' => $tls]) : null;
        $this->stream = @stream_socket_client($address, $code, $message, 2, STREAM_CLIENT_CONNECT, $context)
            ?: throw new RuntimeException("$address: $message");
        stream_set_timeout($this->stream, 2);
    }

    public function command(string ...$words): mixed
    {
        $this->write(self::encode(...$words));
        return $this->read();
    }

    /** Says who it is and which database it means. */
    public function login(): self
    {
        $this->command('AUTH', ...LOGIN);
        $this->command('SELECT', (string) DATABASE);
        return $this;
    }

    public static function encode(string ...$words): string
    {
        $text = '*' . count($words) . "\r\n";
        foreach ($words as $word) {
            $text .= '$' . strlen($word) . "\r\n$word\r\n";
        }
        return $text;
    }

    public function write(string $text): void
    {
        fwrite($this->stream, $text);
    }

    public function read(): mixed
    {
        $line = fgets($this->stream);
        if ($line === false) {
            throw new RuntimeException('no reply');
        }
        $rest = substr($line, 1, -2);
        return match ($line[0]) {
            '+' => $rest,
            ':' => (int) $rest,
            '-' => throw new RuntimeException($rest),
            '$', '=' => $rest === '-1' ? null : $this->bytes((int) $rest),
            '*', '>' => $rest === '-1' ? null : array_map(fn () => $this->read(), array_fill(0, (int) $rest, null)),
            '%' => array_map(fn () => [$this->read(), $this->read()], array_fill(0, (int) $rest, null)),
            '_' => null,
            default => throw new RuntimeException("not understood: $line"),
        };
    }

    /** So many bytes, as they come. */
    public function take(int $length): string
    {
        return fread($this->stream, $length);
    }

    public function timeout(int $us): void
    {
        stream_set_timeout($this->stream, 0, $us);
    }

    private function bytes(int $length): string
    {
        $text = '';
        while (strlen($text) < $length + 2) {
            $more = fread($this->stream, $length + 2 - strlen($text));
            if ($more === false || $more === '') {
                throw new RuntimeException('no reply');
            }
            $text .= $more;
        }
        return substr($text, 0, -2);
    }
}

/** The same commands by phpredis, on a connection of the request or on one that PHP keeps. */
final class Extension
{
    private Redis $redis;

    /** @param array<string, mixed> $tls options of TLS */
    public function __construct(string $host, int $port, bool $persistent, array $tls = [])
    {
        $this->redis = new Redis();
        if ($persistent) {
            $this->redis->pconnect($host, $port, 2);
        } elseif ($tls) {
            $this->redis->connect($host, $port, 2, null, 0, 2, ['stream' => $tls]);
        } else {
            $this->redis->connect($host, $port, 2);
        }
    }

    public function command(string ...$words): mixed
    {
        return $this->redis->rawCommand(...$words);
    }

    public function login(): self
    {
        $this->redis->auth(LOGIN);
        $this->redis->select(DATABASE);
        return $this;
    }

    /** By its own methods: some it remembers itself. */
    public function redis(): Redis
    {
        return $this->redis;
    }
}

/** The same by Predis, in one of its versions: of one in each request. */
final class PureClient
{
    private Predis\Client $client;

    public function __construct(string $version, array $parameters)
    {
        $folder = folder_of("predis$version");
        if (is_file("$folder/Psr/Http/Message/autoload.php")) {
            require_once "$folder/Psr/Http/Message/autoload.php";
        }
        require_once "$folder/Predis/Autoloader.php";
        Predis\Autoloader::register();
        // With its own name for those servers that know CLIENT SETINFO; the others refuse it.
        $this->client = new Predis\Client($parameters + ['timeout' => 2, 'read_write_timeout' => 2, 'client_info' => true]);
    }

    public function command(string ...$words): mixed
    {
        return $this->client->executeRaw($words);
    }
}

/** The same by Credis, without phpredis, which it would use. */
final class SmallestClient
{
    private Credis_Client $client;

    /** @param array<string, mixed> $tls options of TLS */
    public function __construct(string $host, ?int $port, int $database = 0, ?string $user = null, ?string $password = null, ?array $tls = null)
    {
        require_once folder_of('credis') . '/Client.php';
        $this->client = new Credis_Client($host, $port, 2, '', $database, $password, $user, $tls);
        $this->client->forceStandalone();
        $this->client->setReadTimeout(2);
    }

    public function command(string ...$words): mixed
    {
        return $this->client->__call(array_shift($words), $words);
    }
}

/** Where the bench has put a client that is written in PHP. */
function folder_of(string $client): string
{
    $folder = "{$_SERVER['CLIENTS']}/$client";
    return is_dir($folder) ? $folder : throw new RuntimeException((string) @file_get_contents("$folder.why"));
}

/** A client of memcached, over a stream. */
final class SmallMemcached
{
    /** @var resource */
    private $stream;

    public function __construct(string $address)
    {
        $this->stream = @stream_socket_client($address, $code, $message, 2) ?: throw new RuntimeException("$address: $message");
        stream_set_timeout($this->stream, 2);
    }

    public function get(string $key): ?string
    {
        $this->write("get $key\r\n");
        $line = $this->line();
        if ($line === 'END') {
            return null;
        }
        if (!preg_match('/^VALUE \S+ \d+ (\d+)$/D', $line, $found)) {
            throw new RuntimeException($line);
        }
        $text = stream_get_contents($this->stream, (int) $found[1]);
        return $this->line() . $this->line() === 'END' ? $text : throw new RuntimeException('no end');
    }

    /** One line there, one back. */
    public function command(string $text): string
    {
        $this->write("$text\r\n");
        return $this->line();
    }

    public function line(): string
    {
        $line = fgets($this->stream);
        return $line === false ? throw new RuntimeException('no reply') : rtrim($line, "\r\n");
    }

    public function write(string $text): void
    {
        fwrite($this->stream, $text);
    }

    public function take(int $length): string
    {
        return fread($this->stream, $length);
    }

    public function timeout(int $us): void
    {
        stream_set_timeout($this->stream, 0, $us);
    }

    /** What tells connections over TCP apart. */
    public function name(): string
    {
        return (string) stream_socket_get_name($this->stream, false);
    }
}

/**
 * Options of TLS as an application may have them.
 *
 * @return array<string, mixed>
 */
function options_of_tls(string $kind): array
{
    $keys = $_SERVER['CERTIFICATES'];
    $right = ['cafile' => "$keys/ca.pem"];
    return match ($kind) {
        '' => $right,
        'other-ca' => ['cafile' => "$keys/other-ca.pem"],
        'other-name' => $right + ['peer_name' => 'another.example'],
        'no-verify' => ['verify_peer' => false, 'verify_peer_name' => false],
        'ciphers' => $right + ['ciphers' => 'ECDHE-RSA-AES128-GCM-SHA256', 'crypto_method' => STREAM_CRYPTO_METHOD_TLSv1_2_CLIENT],
        'client' => $right + ['local_cert' => "$keys/client.both.pem"],
        'other-client' => $right + ['local_cert' => "$keys/other-client.both.pem"],
        'fingerprint' => $right + ['peer_fingerprint' => ['sha256' => str_repeat('0', 64)]],
        'capture' => $right + ['capture_peer_cert' => true],
        'unknown' => $right + ['an_option_of_later' => 1],
    };
}

function predis(string $version, string $way, string $tls): PureClient
{
    return new PureClient($version, match ($way) {
        '' => ['host' => '127.0.0.1', 'port' => (int) $_SERVER['REDIS_PORT']],
        '-unix' => ['scheme' => 'unix', 'path' => $_SERVER['REDIS_PATH']],
        '-tls' => ['scheme' => 'tls', 'host' => '127.0.0.1', 'port' => (int) $_SERVER['REDIS_TLS_PORT'], 'ssl' => options_of_tls($tls)],
        '-login' => ['host' => '127.0.0.1', 'port' => (int) $_SERVER['REDIS_PORT'], 'username' => LOGIN[0], 'password' => LOGIN[1], 'database' => DATABASE],
    });
}

/** A new connection, as an application makes it. */
function client(string $name, string $tls = ''): SmallClient|Extension|PureClient|SmallestClient|SmallMemcached
{
    if (preg_match('/^predis(\d?)(-unix|-tls|-login)?$/D', $name, $found)) {
        return predis($found[1], $found[2] ?? '', $tls);
    }
    [$port, $path, $tls_port] = [(int) $_SERVER['REDIS_PORT'], $_SERVER['REDIS_PATH'], (int) $_SERVER['REDIS_TLS_PORT']];
    return match ($name) {
        'small' => new SmallClient("tcp://127.0.0.1:$port"),
        // A server by another name is another one.
        'small-elsewhere' => new SmallClient("tcp://localhost:$port"),
        'phpredis-elsewhere' => new Extension('localhost', $port, false),
        'small-unix' => new SmallClient("unix://$path"),
        'small-tls' => new SmallClient("tls://127.0.0.1:$tls_port", options_of_tls($tls)),
        'phpredis' => new Extension('127.0.0.1', $port, false),
        'phpredis-unix' => new Extension($path, 0, false),
        'phpredis-tls' => new Extension('tls://127.0.0.1', $tls_port, false, options_of_tls($tls)),
        'pconnect' => new Extension('127.0.0.1', $port, true),
        'credis' => new SmallestClient('127.0.0.1', $port),
        'credis-unix' => new SmallestClient("unix://$path", null),
        'credis-tls' => new SmallestClient('tls://127.0.0.1', $tls_port, tls: options_of_tls($tls)),
        // With a user and a database.
        'small-login' => (new SmallClient("tcp://127.0.0.1:$port"))->login(),
        'phpredis-login' => (new Extension('127.0.0.1', $port, false))->login(),
        'credis-login' => new SmallestClient('127.0.0.1', $port, DATABASE, ...LOGIN),
        'memcached' => new SmallMemcached("tcp://127.0.0.1:{$_SERVER['MEMCACHED_PORT']}"),
        'memcached-unix' => new SmallMemcached("unix://{$_SERVER['MEMCACHED_PATH']}"),
        'memcached-auth' => new SmallMemcached("tcp://127.0.0.1:{$_SERVER['MEMCACHED_AUTH_PORT']}"),
    };
}
