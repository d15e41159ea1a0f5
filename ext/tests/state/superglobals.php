<?php
// Everything that belongs to the request is the new one's, however it is reached; changes of it last for one request.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    class Input
    {
        public function __construct(private array $names)
        {
        }

        public function get(string $name): mixed
        {
            foreach ($this->names as $source) {
                if (isset($GLOBALS[$source][$name])) {
                    return [$source => $GLOBALS[$source][$name]];
                }
            }
            return null;
        }
    }
    $input = new Input(['_POST', '_GET', '_COOKIE']);
    $keys_in_boot = [isset($_SERVER['REQUEST_TIME']), is_array($_GET), is_array($_FILES)];
    $_GET['from boot'] = 'must not be seen by the next request';
    $_POST['from boot'] = $_COOKIE['from boot'] = $_REQUEST['from boot'] = 1;
    unset($_GET['from boot'], $_POST['from boot'], $_COOKIE['from boot'], $_REQUEST['from boot']);
    snapshot_state();
}

$moved = [];
foreach ($_FILES as $name => $file) {
    $moved[$name] = [move_uploaded_file($file['tmp_name'], scratch("moved-$name")), digest(file_get_contents(scratch("moved-$name")))];
    file_put_contents($file['tmp_name'], file_get_contents(scratch("moved-$name")));
    unlink(scratch("moved-$name"));
}
$headers = array_change_key_case(getallheaders());
report([
    'input' => [$input->get('q'), $input->get('n'), $input->get('name'), $input->get('basket'), $input->get('theme'), $input->get('note')],
    'filter' => [filter_input(INPUT_GET, 'q'), filter_input(INPUT_COOKIE, 'basket'), filter_has_var(INPUT_POST, 'name'), filter_input_array(INPUT_GET)],
    'moved' => $moved,
    'headers' => array_intersect_key($headers, ['cookie' => 1, 'x-trace' => 1, 'content-type' => 1, 'host' => 1]),
    'stream' => [strlen(stream_get_contents(fopen('php://input', 'r'))), fgets(fopen('php://input', 'r'), 10)],
    'variable' => [$GLOBALS['_GET'] === $_GET, (fn () => $_SERVER['REQUEST_METHOD'])(), isset($_SESSION)],
    'argv' => [isset($argv), $_SERVER['argc'] ?? null],
    'boot' => $keys_in_boot,
]);

$_GET = ['q' => 'wrecked'];
$_POST['name'] = 'wrecked';
unset($_COOKIE['basket']);
$_REQUEST['wrecked'] = 1;
$_FILES['wrecked'] = [];
$_SESSION = ['wrecked' => 1];
$_SERVER['HTTP_X_TRACE'] = 'wrecked';
wreck();
