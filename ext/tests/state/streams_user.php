<?php
// Stream wrappers and filters written in PHP, removed built-in wrappers, contexts and the default context.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Variables
    {
        public $context;
        private int $position = 0;
        private string $name = '';
        public static array $store = ['greeting' => "hello\nfrom a variable\n"];

        public function stream_open($path, $mode, $options, &$opened)
        {
            $this->name = parse_url($path, PHP_URL_HOST);
            if (str_contains($mode, 'w')) {
                self::$store[$this->name] = '';
            }
            return isset(self::$store[$this->name]);
        }

        public function stream_read($count)
        {
            $part = substr(self::$store[$this->name], $this->position, $count);
            $this->position += strlen($part);
            return $part;
        }

        public function stream_write($data)
        {
            self::$store[$this->name] .= $data;
            return strlen($data);
        }

        public function stream_eof()
        {
            return $this->position >= strlen(self::$store[$this->name]);
        }

        public function stream_stat()
        {
            return ['size' => strlen(self::$store[$this->name])];
        }

        public function url_stat($path, $flags)
        {
            $name = parse_url($path, PHP_URL_HOST);
            return isset(self::$store[$name]) ? ['size' => strlen(self::$store[$name]), 'mode' => 0100644] : false;
        }

        public function stream_set_option($option, $one, $two)
        {
            return false;
        }
    }
    class Wrapped extends php_user_filter
    {
        public static int $made = 0;

        public function onCreate(): bool
        {
            self::$made++;
            return true;
        }

        public function filter($in, $out, &$consumed, bool $closing): int
        {
            while ($bucket = stream_bucket_make_writeable($in)) {
                $bucket->data = $this->params . strtoupper($bucket->data);
                $consumed += $bucket->datalen;
                stream_bucket_append($out, $bucket);
            }
            return PSFS_PASS_ON;
        }
    }
    stream_wrapper_register('var', 'Variables');
    stream_wrapper_register('twice', 'Variables', STREAM_IS_URL);
    stream_wrapper_unregister('ftp');
    stream_wrapper_unregister('data');
    stream_filter_register('wrapped', 'Wrapped');
    stream_filter_register('wrapped.*', 'Wrapped');
    $default = stream_context_set_default(['http' => ['user_agent' => 'default agent'], 'var' => ['key' => ['deep' => 1]]]);
    $context = stream_context_create(['ssl' => ['verify_peer' => false]], ['notification' => fn () => 1]);
    file_put_contents('var://written', 'written in boot');
    $filtered = file_get_contents('php://filter/read=wrapped/resource=var://written');
    snapshot_state();
}

file_put_contents('var://later', 'by the request');
report([
    'wrappers' => array_values(array_diff(['var', 'twice', 'ftp', 'data', 'file', 'php', 'http'], stream_get_wrappers())),
    'filters' => [in_array('wrapped', stream_get_filters(), true), in_array('wrapped.*', stream_get_filters(), true), Wrapped::$made],
    'read' => [file_get_contents('var://greeting'), file_get_contents('var://written'), file_exists('var://nothing'), filesize('var://later')],
    'filtered' => [$filtered, file_get_contents('php://filter/read=wrapped.x|string.rot13/resource=var://greeting')],
    'context' => [stream_context_get_options(stream_context_get_default()), stream_context_get_options($context), array_keys(stream_context_get_params($context))],
    'default' => $default === stream_context_get_default(),
    'data' => @file_get_contents('data:,text'),
    'include' => (function () {
        Variables::$store['code'] = '<?php return [1, basename(__FILE__)];';
        return include 'var://code';
    })(),
    'again' => @stream_filter_register('wrapped', 'Wrapped'),
]);

stream_wrapper_unregister('var');
stream_wrapper_restore('ftp');
stream_wrapper_restore('data');
stream_wrapper_register('late', 'Variables');
stream_filter_register('late', 'Wrapped');
stream_context_set_default(['http' => ['user_agent' => 'wrecked']]);
stream_context_set_option($context, 'ssl', 'verify_peer', true);
Variables::$store = [];
wreck();
