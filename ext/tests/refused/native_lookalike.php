<?php
// Memory of malloc() that begins with an address, whose upper half reads as the flags of a string that counts its references; what follows
// could be a hash that was not computed yet, a length and the end. It is no string: nothing may be written there.
// needs: ffi
// ini: ffi.enable=1
// expect bytes 3000: of class Holder cannot be part of a snapshot: it points to native memory; it is reached by $app->services['holder']
// expect bytes 300000: of class Holder cannot be part of a snapshot: it points to native memory; it is reached by $app->services['holder']
if (restore_state()) {
    exit('restored');
}
final class Holder
{
    public int $address;
}
$app = new stdClass();
$app->services = ['fine' => new ArrayObject(), 'holder' => new Holder()];
(function () use ($app) {
    $libc = FFI::cdef('void *malloc(size_t);');
    $block = $libc->malloc((int) $_GET['bytes']);
    $words = $libc->cast('intptr_t*', $block);
    foreach ([0x559618c50010, 0, 8, 0, 0] as $at => $word) {
        $words[$at] = $word;
    }
    $app->services['holder']->address = $libc->cast('intptr_t*', FFI::addr($block))[0];
})();
gc_collect_cycles();
$message = null;
try {
    snapshot_state();
} catch (Slipstream\SnapshotException $refused) {
    $message = $refused->getMessage();
}
require __DIR__ . '/../lib/refused.php';
