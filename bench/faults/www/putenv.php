<?php
// Sets a variable of the environment before anything has looked at $_SERVER.
if (!restore_state()) {
    putenv('BOOTED=yes');
    snapshot_state();
}
header('X-Restored: ' . (int) Slipstream\status()['restored']);
echo getenv('BOOTED');
