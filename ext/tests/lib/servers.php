<?php
/** Starts PHP as a server: its own built-in one, or php-fpm behind nginx. Everything started here is stopped here. */

namespace Check;

/** Longest wait for a server to start, to answer or to end. The machine may be busy. */
const PATIENCE_S = 60;

/** How often a server is asked whether it is ready. */
const POLL_US = 2_000;

/** A child process whose output goes to a file. Ends with its starter, even if that one is killed. */
final class Process
{
    /** @var resource|null */
    private $handle;

    /** @param list<string> $command */
    public function __construct(array $command, public readonly string $log, ?string $directory = null)
    {
        $streams = [['file', '/dev/null', 'r'], ['file', $log, 'a'], ['file', $log, 'a']];
        $handle = proc_open(['setpriv', '--pdeathsig', 'TERM', ...$command], $streams, $pipes, $directory);
        if ($handle === false) {
            throw new ServerError("cannot start $command[0]");
        }
        $this->handle = $handle;
    }

    public function pid(): int
    {
        return proc_get_status($this->handle)['pid'];
    }

    public function running(): bool
    {
        return $this->handle !== null && proc_get_status($this->handle)['running'];
    }

    /** Asks the process to end, and kills it if it does not. php-fpm and nginx take their workers with them. */
    public function stop(): void
    {
        if ($this->handle === null) {
            return;
        }
        proc_terminate($this->handle, SIGTERM);
        $end = microtime(true) + PATIENCE_S;
        while ($this->running()) {
            if (microtime(true) > $end) {
                proc_terminate($this->handle, SIGKILL);
                break;
            }
            usleep(POLL_US);
        }
        proc_close($this->handle);
        $this->handle = null;
    }

    public function __destruct()
    {
        $this->stop();
    }
}

/** @throws ServerError if $ready stays false, or if the process ends */
function wait_until(callable $ready, Process $process, string $what): void
{
    $end = microtime(true) + PATIENCE_S;
    while (!$ready()) {
        if (!$process->running() || microtime(true) > $end) {
            throw new ServerError("$what does not start: " . trim((string) file_get_contents($process->log)));
        }
        usleep(POLL_US);
    }
}

/** Where the files of a run are, and how PHP is started there. */
final class Place
{
    /**
     * @param string $home the folder of the run as seen from here
     * @param string $inside the same folder as PHP sees it
     * @param list<string> $prefix command that starts another one where PHP is
     * @param list<string> $settings `NAME=VALUE` for php.ini
     */
    public function __construct(
        public readonly string $home,
        public readonly string $inside,
        public readonly array $prefix,
        public readonly string $php,
        public readonly string $php_fpm,
        public readonly array $settings,
    ) {
    }
}

/** One application: which script, its own php.ini settings, a folder that only it writes to. */
final class Application
{
    public readonly string $path;
    public readonly string $name;

    /** @param list<string> $settings */
    public function __construct(public readonly string $script, public readonly array $settings)
    {
        $this->path = "/$script.php";
        $this->name = strtr($script, '/', '-');
    }
}

/** A server that runs several applications, each in its own worker. */
interface Server
{
    /** @throws ServerError */
    public function send(Application $application, Request $request): Response;

    /** What the application's worker wrote to logs. */
    public function logs(Application $application): string;

    /** Stops everything, also when called twice. */
    public function stop(): void;
}

/** Makes the folder that an application may write to; workers may run as another user. */
function make_scratch(string $folder, string $port): void
{
    mkdir($folder);
    chmod($folder, 0777);
    file_put_contents("$folder/port", $port);
}

/** @return list<string> php.ini settings of the worker that has this folder */
function own_settings(string $folder): array
{
    return ["sys_temp_dir=$folder", "error_log=$folder/errors.log"];
}

/** `php -S`: one process per application, started when it is first asked. */
final class CliServer implements Server
{
    /** @var array<string, array{Process, string}> */
    private array $processes = [];

    public function __construct(private Place $place, private string $name, private string $port)
    {
        mkdir("$place->home/$name");
    }

    public function send(Application $application, Request $request): Response
    {
        if (!isset($this->processes[$application->name])) {
            $this->start($application);
        }
        return send($this->processes[$application->name][1], $request);
    }

    private function start(Application $application): void
    {
        $inside = "{$this->place->inside}/$this->name/$application->name";
        $outside = "{$this->place->home}/$this->name/$application->name";
        make_scratch($outside, $this->port);
        $command = [...$this->place->prefix, $this->place->php];
        $settings = [...$this->place->settings, ...own_settings($inside), ...$application->settings];
        foreach ($settings as $setting) {
            array_push($command, '-d', $setting);
        }
        // With port 0 the system chooses a free one, and PHP says which.
        array_push($command, '-S', '127.0.0.1:0', '-t', "{$this->place->inside}/tests");
        $log = "$outside.log";
        touch($log);
        $process = new Process($command, $log);
        $address = null;
        $ready = function () use ($log, &$address): bool {
            $found = preg_match('~\(http://(127\.0\.0\.1:\d+)\) started~', (string) file_get_contents($log), $match);
            $address = $found ? "tcp://$match[1]" : null;
            return $found === 1;
        };
        wait_until($ready, $process, 'the built-in server');
        $this->processes[$application->name] = [$process, $address];
    }

    public function logs(Application $application): string
    {
        $folder = "{$this->place->home}/$this->name/$application->name";
        $lines = preg_grep('~ (Accepted|Closing|\[\d+\]: .*|.* started)$~', (array) @file("$folder.log"), PREG_GREP_INVERT);
        return implode($lines) . @file_get_contents("$folder/errors.log");
    }

    public function stop(): void
    {
        foreach ($this->processes as [$process]) {
            $process->stop();
        }
        $this->processes = [];
    }
}

/** One php-fpm with a pool of one worker per application, and an nginx in front of it. */
final class Fpm implements Server
{
    private readonly string $folder;
    private readonly string $inside;
    /** @var list<Process> */
    private array $processes = [];

    /** @param list<Application> $applications */
    public function __construct(private Place $place, private string $name, string $port, array $applications)
    {
        $this->folder = "$place->home/$name";
        $this->inside = "$place->inside/$name";
        mkdir($this->folder);
        $pools = '';
        foreach ($applications as $application) {
            make_scratch("$this->folder/$application->name", $port);
            $pools .= $this->pool($application);
        }
        // One pool each, so that a worker that dies takes no other application's state with it.
        file_put_contents("$this->folder/fpm.conf", "[global]\nerror_log = $this->inside/fpm.log\ndaemonize = no\n$pools");
        file_put_contents("$this->folder/nginx.conf", $this->nginx());
        touch("$this->folder/fpm.log");

        $command = [...$place->prefix, $place->php_fpm, '-F', '-y', "$this->inside/fpm.conf"];
        if (posix_geteuid() === 0) {
            $command[] = '-R';
        }
        foreach ($place->settings as $setting) {
            array_push($command, '-d', $setting);
        }
        $fpm = $this->processes[] = new Process($command, "$this->folder/fpm.out");
        $log = "$this->folder/fpm.log";
        $ready = fn (): bool => str_contains((string) file_get_contents($log), 'ready to handle connections');
        try {
            wait_until($ready, $fpm, 'php-fpm');
        } catch (ServerError $error) {
            throw new ServerError($error->getMessage() . "\n" . file_get_contents($log));
        }
        $nginx = $this->processes[] = new Process(
            ['nginx', '-p', $this->folder, '-e', "$this->folder/nginx.log", '-c', 'nginx.conf'],
            "$this->folder/nginx.log",
            $this->folder,
        );
        $ready = fn (): bool => @stream_socket_client($this->address()) !== false;
        wait_until($ready, $nginx, 'nginx');
    }

    private function pool(Application $application): string
    {
        $lines = [
            "[$application->name]",
            "listen = $this->inside/$application->name.socket",
            'pm = static',
            'pm.max_children = 1',
        ];
        if (posix_geteuid() === 0) {
            // Workers run without privileges, as they do in production.
            array_push($lines, 'user = www-data', 'group = www-data');
        }
        foreach ([...own_settings("$this->inside/$application->name"), ...$application->settings] as $setting) {
            [$key, $value] = explode('=', $setting, 2);
            $lines[] = "php_value[$key] = $value";
        }
        return implode("\n", $lines) . "\n";
    }

    private function nginx(): string
    {
        $user = posix_geteuid() === 0 ? 'user root;' : '';
        $temporary = '';
        foreach (['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'] as $kind) {
            $temporary .= "    {$kind}_temp_path temp-$kind;\n";
        }
        $parameters = '';
        foreach ([
            'SCRIPT_FILENAME' => "{$this->place->inside}/tests\$fastcgi_script_name",
            'DOCUMENT_ROOT' => "{$this->place->inside}/tests",
            'SCRIPT_NAME' => '$fastcgi_script_name',
            'DOCUMENT_URI' => '$document_uri',
            'REQUEST_URI' => '$request_uri',
            'REQUEST_METHOD' => '$request_method',
            'REQUEST_SCHEME' => '$scheme',
            'QUERY_STRING' => '$query_string',
            'CONTENT_TYPE' => '$content_type',
            'CONTENT_LENGTH' => '$content_length',
            'GATEWAY_INTERFACE' => 'CGI/1.1',
            'SERVER_PROTOCOL' => '$server_protocol',
            'SERVER_SOFTWARE' => 'nginx',
            'SERVER_NAME' => '$host',
            'REDIRECT_STATUS' => '200',
        ] as $name => $value) {
            $parameters .= "            fastcgi_param $name $value;\n";
        }
        return <<<CONF
        $user
        daemon off;
        master_process off;
        pid nginx.pid;
        events { worker_connections 64; }
        http {
            access_log off;
            client_max_body_size 64m;
        $temporary
            server {
                listen unix:http.socket;
                location ~ ^/(\w+)/(\w+)\.php$ {
        $parameters
                    fastcgi_pass unix:$this->folder/$1-$2.socket;
                    fastcgi_read_timeout 60;
                }
            }
        }

        CONF;
    }

    private function address(): string
    {
        return "unix://$this->folder/http.socket";
    }

    public function send(Application $application, Request $request): Response
    {
        return send($this->address(), $request);
    }

    public function logs(Application $application): string
    {
        $lines = (array) @file("$this->folder/fpm.log", FILE_IGNORE_NEW_LINES);
        // The log is one for all pools: a line that names another pool is of no use here.
        $other = '/pool (?!' . preg_quote($application->name, '/') . '\b)/';
        $lines = array_filter($lines, fn ($line) => !preg_match($other, $line) && !str_contains($line, 'NOTICE: '));
        return implode("\n", $lines) . "\n" . @file_get_contents("$this->folder/$application->name/errors.log");
    }

    public function stop(): void
    {
        foreach (array_reverse($this->processes) as $process) {
            $process->stop();
        }
    }
}
