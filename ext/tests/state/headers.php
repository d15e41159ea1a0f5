<?php
// Headers and the response code that the boot sends, and those that a request changes.
// query: do=0
// query: do=change
// query: do=remove
// query: do=code
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    header('X-Content-Type-Options: nosniff');
    header('X-Replaced: first');
    header('X-Replaced: second');
    header('X-Many: one');
    header('X-Many: two', false);
    header('X-Removed: yes');
    header_remove('X-Removed');
    header('Content-Type: application/vnd.test+json; charset=utf-8');
    header_remove('X-Powered-By');
    http_response_code(203);
    snapshot_state();
}

switch ($_GET['do']) {
    case 'change':
        header('X-Content-Type-Options: changed');
        header('X-Many: three', false);
        header('X-Request: only here');
        setcookie('request', 'only-here', ['path' => '/']);
        break;
    case 'remove':
        header_remove();
        break;
    case 'code':
        header('Location: /elsewhere', true, 307);
        header('Content-Type: text/plain');
        break;
}
report(['sent' => headers_sent(), 'code' => http_response_code(), 'list' => headers_list()]);
if (!headers_sent()) {
    header('X-Last: after the report');
}
