<?php
/** Included by deep.php: code without a function, whose frame is the file. */
$words = 0;
for ($i = 0; $i < 2000; $i++) {
    $words += strlen(strrev("leaf $i")) ^ ord(md5((string) $i)[0]);
}
return $words;
