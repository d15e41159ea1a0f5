<?php
// Something of each extension that is there: what they allocate in one library and free in another one must not matter.

$done = [];

/** Runs one part if its extension is loaded. */
function with(string $extension, callable $part): void
{
    global $done;
    if (extension_loaded($extension)) {
        $part();
        $done[] = $extension;
    }
}

function must(bool $holds, string $what): void
{
    if (!$holds) {
        fwrite(STDERR, "not true: $what\n");
        exit(1);
    }
}

with('json', fn () => must(strlen(json_encode(range(1, 20000))) > 100000, 'json'));
with('mbstring', fn () => must(mb_strtoupper(str_repeat('straße ', 5000)) !== '', 'mbstring'));
with('dom', function () {
    $document = new DOMDocument();
    for ($number = 0, $root = $document->appendChild($document->createElement('root')); $number < 3000; $number++) {
        $root->appendChild($document->createElement('item', "text $number"))->setAttribute('number', "$number");
    }
    $path = new DOMXPath($document);
    must($path->query('//item[@number > 1000]')->length === 1999, 'dom');
    must(strlen($document->saveXML()) > 100000, 'dom');
});
with('simplexml', fn () => must((string) simplexml_load_string('<a><b>c</b></a>')->b === 'c', 'simplexml'));
with('xml', fn () => must(xml_parse(xml_parser_create(), '<a>' . str_repeat('<b/>', 5000) . '</a>', true) === 1, 'xml'));
with('xsl', function () {
    $sheet = new DOMDocument();
    $sheet->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/">x</xsl:template></xsl:stylesheet>');
    $processor = new XSLTProcessor();
    $processor->importStylesheet($sheet);
    must($processor->transformToXml($sheet) !== false, 'xsl');
});
with('pdo_sqlite', function () {
    $database = new PDO('sqlite::memory:');
    $database->exec('create table t (a integer, b text)');
    $insert = $database->prepare('insert into t values (?, ?)');
    for ($number = 0; $number < 3000; $number++) {
        $insert->execute([$number, str_repeat('x', $number % 500)]);
    }
    must((int) $database->query('select count(*) from t where length(b) > 100')->fetchColumn() > 1000, 'pdo_sqlite');
});
with('curl', function () {
    $handle = curl_init('file://' . __FILE__);
    curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
    must(curl_exec($handle) === file_get_contents(__FILE__), 'curl');
    must(curl_escape($handle, 'a b') === 'a%20b', 'curl');
});
with('intl', function () {
    must((new Collator('de_DE'))->compare('a', 'b') < 0, 'intl');
    must((new NumberFormatter('de_DE', NumberFormatter::DECIMAL))->format(1234.5) === '1.234,5', 'intl');
});
with('gd', function () {
    $image = imagecreatetruecolor(300, 300);
    ob_start();
    imagepng($image);
    must(strlen(ob_get_clean()) > 100, 'gd');
});
with('iconv', fn () => must(iconv('UTF-8', 'ISO-8859-1', 'ä') === "\xe4", 'iconv'));
with('fileinfo', fn () => must((new finfo(FILEINFO_MIME_TYPE))->file(__FILE__) === 'text/x-php', 'fileinfo'));
with('phar', fn () => must(count(Phar::getSupportedCompression()) >= 0, 'phar'));
with('igbinary', fn () => must(igbinary_unserialize(igbinary_serialize(range(1, 5000))) === range(1, 5000), 'igbinary'));
with('tokenizer', fn () => must(count(token_get_all(file_get_contents(__FILE__))) > 500, 'tokenizer'));
with('sockets', fn () => must(socket_create(AF_UNIX, SOCK_STREAM, 0) !== false, 'sockets'));
if (PHP_SAPI === 'cli') {
    // Elsewhere only preloaded scripts may use it.
    with('ffi', fn () => must(FFI::cdef('int abs(int);')->abs(-3) === 3, 'ffi'));
}
with('readline', fn () => must(readline_add_history('x'), 'readline'));
with('posix', fn () => must(posix_getpwuid(posix_geteuid()) !== false, 'posix'));
with('mysqli', fn () => must(mysqli_init() !== false, 'mysqli'));
with('redis', fn () => must(new Redis() instanceof Redis, 'redis'));

$text = str_repeat('some words of a text ', 20000);
must(preg_match_all('/(\w+) (\w+)/u', $text) > 10000, 'pcre');
must(unserialize(serialize(array_fill(0, 20000, [1, 'two', 3.0])))[19999][1] === 'two', 'arrays');
if (function_exists('gzcompress')) {
    must(gzuncompress(gzcompress($text)) === $text, 'zlib');
}
echo 'ok ', count($done), "\n";
