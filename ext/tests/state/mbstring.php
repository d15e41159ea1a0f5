<?php
// Settings of mbstring.
// needs: mbstring
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    mb_internal_encoding('SJIS');
    mb_http_output('EUC-JP');
    mb_substitute_character(0x3013);
    mb_detect_order(['ASCII', 'EUC-JP', 'UTF-8']);
    mb_language('Japanese');
    if (function_exists('mb_regex_encoding')) {
        mb_regex_encoding('EUC-JP');
        mb_regex_set_options('i');
    }
    snapshot_state();
}

$katakana = "\x83\x65\x83\x58\x83\x67";
report([
    'settings' => [
        mb_internal_encoding(), mb_http_output(), mb_substitute_character(), mb_detect_order(), mb_language(),
        function_exists('mb_regex_encoding') ? [mb_regex_encoding(), mb_regex_set_options()] : null,
    ],
    'effects' => [mb_strlen($katakana), bin2hex(mb_convert_encoding("a\u{1F600}b", 'SJIS', 'UTF-8')), mb_detect_encoding("\xa4\xa2")],
]);

mb_internal_encoding('UTF-8');
mb_http_output('UTF-8');
mb_substitute_character('none');
mb_detect_order(['UTF-8']);
mb_language('uni');
if (function_exists('mb_regex_encoding')) {
    mb_regex_encoding('UTF-8');
    mb_regex_set_options('x');
}
