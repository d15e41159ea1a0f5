<?php
// What belongs to the process: time zone, locale, environment variables, umask, working folder.
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    date_default_timezone_set('Pacific/Chatham');
    $locale = setlocale(LC_ALL, 'C.UTF-8', 'C.utf8');
    setlocale(LC_NUMERIC, 'C');
    putenv('SLIP_TEST_VALUE=from boot');
    putenv('SLIP_TEST_EMPTY=');
    putenv('SLIP_TEST_REMOVED=x');
    putenv('SLIP_TEST_REMOVED');
    putenv('TZ=Europe/Lisbon');
    umask(027);
    is_dir(scratch('folder')) || mkdir(scratch('folder'));
    chdir(scratch('folder'));
    file_put_contents('relative.txt', 'found by a relative path');
    snapshot_state();
}

$file = scratch('mask.txt');
touch($file);
$mode = fileperms($file) & 0777;
unlink($file);
report([
    'time' => [date_default_timezone_get(), date('c', 86400 * 365), mktime(0, 0, 0, 1, 1, 2020)],
    'locale' => [$locale !== false, setlocale(LC_ALL, 0), setlocale(LC_CTYPE, 0), localeconv()['decimal_point']],
    'environment' => [getenv('SLIP_TEST_VALUE'), getenv('SLIP_TEST_EMPTY'), getenv('SLIP_TEST_REMOVED'), getenv('SLIP_TEST_LATER'), getenv('TZ')],
    'child' => trim((string) shell_exec('echo "$SLIP_TEST_VALUE|$SLIP_TEST_LATER"; umask; echo "${PWD##*/}"')),
    'umask' => [umask(), decoct($mode)],
    'folder' => [basename(getcwd()), file_get_contents('relative.txt'), basename((string) realpath('.'))],
]);

date_default_timezone_set('America/Lima');
setlocale(LC_ALL, 'POSIX');
putenv('SLIP_TEST_VALUE=wrecked');
putenv('SLIP_TEST_LATER=by the request');
putenv('SLIP_TEST_EMPTY');
umask(0);
chdir('/');
wreck();
