//! What no header tells: structures that PHP keeps in its `.c` files. Kept by hand; `tests/fpm.rs` compares what is read
//! with what the running engine says: `memory_get_usage()`, the URI, requests told apart.

/// `struct _zend_mm_heap`, behind the address that every chunk of request memory begins with.
///
/// `Zend/zend_alloc.c` at
/// [php-8.2.32](https://github.com/php/php-src/blob/php-8.2.32/Zend/zend_alloc.c) and
/// [php-8.4.24](https://github.com/php/php-src/blob/php-8.4.24/Zend/zend_alloc.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmHeap {
    /// Bytes in use; `memory_get_usage()`. 0 from the end of one request to the first allocation of the next.
    pub(crate) size: usize,
    /// Most bytes in use during this request; `memory_get_peak_usage()`.
    pub(crate) peak: usize,
    /// A random number that is new for each request: it hides the free lists from exploits. Not in 8.2.
    pub(crate) shadow_key: Option<usize>,
}

pub(super) const MM_HEAP_8_2: MmHeap = MmHeap { size: 16, peak: 24, shadow_key: None };
pub(super) const MM_HEAP_8_4: MmHeap = MmHeap { size: 16, peak: 24, shadow_key: Some(32) };

impl MmHeap {
    /// Size and alignment of a chunk, `ZEND_MM_CHUNK_SIZE`. The first word of each is the address of the heap.
    pub(crate) const CHUNK_BYTES: u64 = 2 << 20;
    /// Where the heap lies in the first chunk: `offsetof(zend_mm_chunk, heap_slot)`.
    pub(crate) const SLOT_IN_CHUNK: u64 = 64;
}

/// Where opcache's shared memory tells about itself.
///
/// `zend_smm_shared_globals`, with which the memory begins, and `zend_accel_shared_globals`, to which it points:
/// `ext/opcache/zend_shared_alloc.h` and `ext/opcache/ZendAccelerator.h` at
/// [php-8.2.32](https://github.com/php/php-src/tree/php-8.2.32/ext/opcache); the same at
/// [php-8.4.24](https://github.com/php/php-src/tree/php-8.4.24/ext/opcache).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opcache {
    /// `zend_smm_shared_globals.shared_segments`.
    pub(crate) shared_segments: usize,
    /// `zend_smm_shared_globals.shared_segments_count`.
    pub(crate) shared_segments_count: usize,
    /// `zend_smm_shared_globals.app_shared_globals`.
    pub(crate) app_shared_globals: usize,
    /// `zend_accel_shared_globals.oom_restarts`, and behind it `hash_restarts` and `manual_restarts`.
    pub(crate) oom_restarts: u64,
}

impl Opcache {
    /// `zend_smm_shared_globals`: as much as we read of it.
    pub(crate) const LEN: usize = 64;
}

pub(crate) const OPCACHE: Opcache =
    Opcache { shared_segments: 0, shared_segments_count: 8, app_shared_globals: 56, oom_restarts: 24 };

/// `struct _fcgi_request` with its `fcgi_hash`, to which `SG(server_context)` points in php-fpm and php-cgi.
///
/// `main/fastcgi.c` at [php-8.2.32](https://github.com/php/php-src/blob/php-8.2.32/main/fastcgi.c); the same at
/// [php-8.4.24](https://github.com/php/php-src/blob/php-8.4.24/main/fastcgi.c).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fcgi {
    /// `has_env`: 0 once the variables are gone.
    pub(crate) has_env: u64,
    /// `env.hash_table`: `FCGI_HASH_TABLE_SIZE` pointers to buckets.
    pub(crate) env_hash_table: u64,
    /// `FCGI_HASH_TABLE_SIZE`.
    pub(crate) slots: u64,
    /// `fcgi_hash_bucket`: as much as we read of it.
    pub(crate) bucket_len: usize,
    /// `fcgi_hash_bucket.var_len`.
    pub(crate) var_len: usize,
    /// `fcgi_hash_bucket.var`.
    pub(crate) var: usize,
    /// `fcgi_hash_bucket.val_len`.
    pub(crate) val_len: usize,
    /// `fcgi_hash_bucket.val`.
    pub(crate) val: usize,
    /// `fcgi_hash_bucket.next`.
    pub(crate) next: usize,
}

pub(crate) const FCGI: Fcgi = Fcgi {
    has_env: 8_288,
    env_hash_table: 8_296,
    slots: 128,
    bucket_len: 40,
    var_len: 4,
    var: 8,
    val_len: 16,
    val: 24,
    next: 32,
};

impl Fcgi {
    /// The slot of a variable's name: `FCGI_HASH_FUNC` of `main/fastcgi.h`.
    pub(crate) fn slot(&self, name: &[u8]) -> u64 {
        let byte = |at: usize| name.get(at).copied().map_or(0, u64::from);
        let len = name.len();
        let hash = if len < 3 {
            len as u64
        } else {
            (byte(3) << 2) + (byte(len - 2) << 4) + (byte(len - 1) << 2) + len as u64
        };
        hash & (self.slots - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_name_is_what_php_computes() {
        assert_eq!(FCGI.slot(b"REQUEST_URI"), 35);
        assert_eq!(FCGI.slot(b"X"), 1);
    }
}
