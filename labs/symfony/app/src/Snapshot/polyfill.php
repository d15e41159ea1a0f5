<?php

/**
 * The two global functions of the extension, for a PHP without it: nothing is ever restored, so every request boots.
 *
 * Front controllers include this file only where the functions are missing.
 */

function snapshot_state(): void
{
}

function restore_state(): bool
{
    return false;
}
