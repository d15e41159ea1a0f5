<?php
/**
 * The functions of the extension for a PHP that does not have it: every request boots. What an application does with
 * these is what it must do with the extension.
 */

namespace {
    function restore_state(): bool
    {
        return false;
    }

    function snapshot_state(): void
    {
        foreach (Slipstream\Polyfill::$before as $callback) {
            $callback();
        }
        if (headers_sent() || (int) ob_get_length() > 0 || ob_get_level() > (int) (bool) ini_get('output_buffering')) {
            throw new Slipstream\SnapshotException('the case itself is wrong: its boot makes output');
        }
        if (count(debug_backtrace()) > 1) {
            throw new Slipstream\SnapshotException('the case itself is wrong: it saves from inside a function or another file');
        }
    }
}

namespace Slipstream {
    final class Polyfill
    {
        /** @var list<callable> */
        public static array $before = [];
    }

    class SnapshotException extends \RuntimeException
    {
    }

    function status(): array
    {
        return [
            'enabled' => false, 'reason' => 'polyfill', 'mechanism' => null, 'image' => null, 'snapshots' => 0, 'restores' => 0,
            'restored' => false, 'fallbacks' => [], 'refusals' => [], 'dirty_pages' => 0, 'restore_ns' => 0,
        ];
    }

    function discard(): void
    {
    }

    function before_snapshot(callable $callback): void
    {
        Polyfill::$before[] = $callback;
    }

    function on_restore(callable $callback): void
    {
    }
}
