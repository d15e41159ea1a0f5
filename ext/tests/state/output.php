<?php
// Output of the requests: buffers, handlers, flushes, headers afterwards. The boot's own buffers were closed before.
// query: do=0
// query: do=buffer
// query: do=flush
// query: do=left
// query: do=rewrite
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $level = ob_get_level();
    ob_start();
    echo 'caught in boot';
    $caught = ob_get_clean();
    $handler = fn (string $text, int $phase) => "[$phase:" . strlen($text) . "]$text";
    function shout(string $text): string
    {
        return strtoupper($text);
    }
    snapshot_state();
}

$levels = [$level, ob_get_level(), ob_list_handlers()];
switch ($_GET['do']) {
    case 'buffer':
        ob_start($handler, 20);
        echo str_repeat('long output ', 10);
        ob_start('shout');
        echo "inner\n";
        ob_end_flush();
        ob_end_flush();
        break;
    case 'flush':
        echo "flushed\n";
        while (ob_get_level() > 0) {
            ob_end_flush();
        }
        flush();
        break;
    case 'left':
        break;
    case 'rewrite':
        output_add_rewrite_var('added', 'value');
        echo "<a href=\"page.php\">link</a>\n";
        break;
}
report(['levels' => $levels, 'caught' => $caught, 'sent' => headers_sent()]);
if ($_GET['do'] === 'left') {
    ob_start('shout');
    echo "left open\n";
    ob_start($handler);
    echo "and inside\n";
}
