<?php

namespace {
    /**
     * Saves the state of the process: what the script has declared, created and set so far. Later requests of the same
     * script get it back by restore_state(). Must be called from the main script, outside of functions.
     *
     * Does nothing where a snapshot cannot be kept (status() says why) or is there already.
     *
     * @throws Slipstream\SnapshotException if the state cannot be saved: an object holds native memory, a value of the
     *     current request is part of the state, and so on. The message names what it is and how it is reached.
     */
    function snapshot_state(): void {}

    /**
     * Puts the saved state back: everything that was declared, created and set when snapshot_state() was called.
     * The request's own input, output and superglobals stay.
     *
     * @return bool false if there is nothing to put back or it does not apply; status() counts the reasons. The script
     *     boots as usual then.
     */
    function restore_state(): bool {}
}

namespace Slipstream {
    /** Thrown by snapshot_state(): why the state cannot be saved. */
    class SnapshotException extends \RuntimeException {}

    /** What this worker has saved, restored and refused, since it started. */
    function status(): array {}

    /** Drops the image of this worker at the end of the request. */
    function discard(): void {}

    /** Registers what snapshot_state() calls first: close connections, drop what belongs to the request. */
    function before_snapshot(callable $callback): void {}

    /** Registers what restore_state() calls last, in every request that was restored: reconnect, reseed. */
    function on_restore(callable $callback): void {}
}
