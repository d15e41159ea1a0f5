--TEST--
PHP starts with the extension when another module is not there
--EXTENSIONS--
slipstream
--INI--
extension=there_is_no_such_module
display_startup_errors=1
--FILE--
<?php
// The warning is memory of the start-up, which PHP frees when all modules have started.
var_dump(Slipstream\status()['enabled'], error_get_last());
echo str_repeat('x', 20), "\n";
?>
--EXPECTF--
%AUnable to load dynamic library%Abool(true)
NULL
xxxxxxxxxxxxxxxxxxxx
