<?php
/** Ends a case that must not be saved: `$message` is what snapshot_state() said, null if it took the image. */
echo "\n#refused ", json_encode(
    ['message' => $message, 'status' => Slipstream\status(), 'pid' => getmypid()],
    JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR,
), "\n";
