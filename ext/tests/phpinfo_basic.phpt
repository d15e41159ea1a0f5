--TEST--
phpinfo() has a section of the extension
--EXTENSIONS--
slipstream
--FILE--
<?php
ob_start();
(new ReflectionExtension('slipstream'))->info();
$text = ob_get_clean();
var_dump(str_starts_with(ltrim($text), 'slipstream'));
var_dump(preg_match('/^Slipstream.* => (enabled|disabled)$/mi', $text));
var_dump(strlen(phpversion('slipstream')) > 0);
?>
--EXPECT--
bool(true)
int(1)
bool(true)
