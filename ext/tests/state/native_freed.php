<?php
// Addresses of freed blocks: nothing native any more, although malloc() keeps the last ones of each size at hand.
// needs: ffi
// ini: ffi.enable=1
if (!restore_state()) {
    require __DIR__ . '/../lib/case.php';
    $freed = (function (): array {
        $libc = FFI::cdef('void *malloc(size_t); void free(void *); const char *gnu_get_libc_version(void);');
        // As many as it keeps: what it has joined to larger ones may have been given out again. And of a size that is rare.
        $kept = version_compare($libc->gnu_get_libc_version(), '2.42', '<') ? 7 : 16;
        for ($i = 0; $i < $kept; $i++) {
            $blocks[] = $libc->malloc(984);
        }
        foreach ($blocks as $block) {
            $addresses[] = $libc->cast('intptr_t*', FFI::addr($block))[0];
            $libc->free($block);
        }
        return $addresses;
    })();
    gc_collect_cycles();
    snapshot_state();
}
report(['count' => count(array_unique($freed)), 'aligned' => array_sum(array_map(fn ($address) => $address % 16, $freed))]);
$freed = [];
