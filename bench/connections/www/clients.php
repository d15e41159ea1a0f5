<?php
/** A client of Redis as small as one can be: like Predis and credis it speaks the protocol itself, over a stream. */
final class SmallClient
{
    /** @var resource */
    private $stream;

    public function __construct(string $address)
    {
        $this->stream = stream_socket_client($address, $code, $message, 2) ?: throw new RuntimeException("$address: $message");
        stream_set_timeout($this->stream, 2);
    }

    public function command(string ...$words): mixed
    {
        $this->write(self::encode(...$words));
        return $this->read();
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

    public function __construct(string $host, int $port, bool $persistent)
    {
        $this->redis = new Redis();
        $persistent ? $this->redis->pconnect($host, $port, 2) : $this->redis->connect($host, $port, 2);
    }

    public function command(string ...$words): mixed
    {
        return $this->redis->rawCommand(...$words);
    }

    /** By its own methods: some it remembers itself. */
    public function redis(): Redis
    {
        return $this->redis;
    }
}

/** The same by Predis. */
final class PureClient
{
    private Predis\Client $client;

    public function __construct(array $parameters)
    {
        require_once 'Predis/Autoloader.php';
        Predis\Autoloader::register();
        $this->client = new Predis\Client($parameters + ['timeout' => 2, 'read_write_timeout' => 2]);
    }

    public function command(string ...$words): mixed
    {
        return $this->client->executeRaw($words);
    }
}

/** A new connection, as an application makes it. */
function client(string $name): SmallClient|Extension|PureClient
{
    [$port, $path] = [(int) $_SERVER['REDIS_PORT'], $_SERVER['REDIS_PATH']];
    return match ($name) {
        'small' => new SmallClient("tcp://127.0.0.1:$port"),
        'small-unix' => new SmallClient("unix://$path"),
        'phpredis' => new Extension('127.0.0.1', $port, false),
        'phpredis-unix' => new Extension($path, 0, false),
        'pconnect' => new Extension('127.0.0.1', $port, true),
        'predis' => new PureClient(['host' => '127.0.0.1', 'port' => $port]),
        'predis-unix' => new PureClient(['scheme' => 'unix', 'path' => $path]),
    };
}
