//! What is known of code, by all processes together: workers of a pool run the same code in the same memory.
//!
//! opcache's memory is mapped by every worker, so what one has read of a function there is true for all. Everything else
//! at the same address of two workers may differ, and is known for each worker by itself.
//!
//! Code in opcache's memory never changes, until opcache starts anew (`opcache_reset()`, or its memory is full) and puts
//! other code in its place. It does so between two requests, when no worker runs code of it, and counts it before it begins
//! (`accel_activate` in `ext/opcache/ZendAccelerator.c`). That count is read once for each request, when it runs such code.

use slip_remote::{Range, RemoteAddr, SharedObject, SharedRange, prefetch};

use crate::calls::Calls;
use crate::functions::Functions;
use crate::paths::Paths;
use crate::{frames, request, single_copy};

/// What a sample is taken with.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) copy: Box<single_copy::Buffers>,
    pub(crate) frames: Box<frames::Buffers>,
    pub(crate) request: Box<request::Buffers>,
}

/// How often an opcache has started anew, by reason: no memory, no room in its table, asked to.
pub(crate) type Restarts = [u64; 3];

/// Whose memory it is: one process's own, or an object's that processes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner(u32);

/// An address, and whose memory it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CodeAddr {
    pub(crate) owner: Owner,
    pub(crate) addr: RemoteAddr,
}

/// Code that was read before, for all processes whose stacks go into one [`Interner`](slip_model::Interner): it keeps the
/// interner's numbers.
#[derive(Debug, Default)]
pub struct CodeCache {
    pub(crate) functions: Functions,
    pub(crate) calls: Calls,
    pub(crate) paths: Paths,
    /// Lent to the process that is being sampled: what is used all the time stays in the CPU's cache. Boxed, because what is
    /// exchanged for it lies in memory that has left the cache.
    pub(crate) buffers: Buffers,
    /// Each opcache, whose memory it owns, and how often it has started anew.
    caches: Vec<(SharedObject, Owner, Restarts)>,
    owners: u32,
}

impl CodeCache {
    /// Has the CPU fetch what every sample is taken with.
    pub fn prefetch(&self) {
        prefetch(self);
        prefetch(&*self.buffers.copy);
        self.buffers.frames.prefetch();
        self.buffers.request.prefetch();
    }

    /// The memory of one more process, of which `opcache` is shared.
    pub(crate) fn enter(&mut self, opcache: Option<SharedRange>) -> Owners {
        let private = self.next_owner();
        let shared = opcache.map(|shared| {
            let known =
                self.caches.iter().find(|(object, _, _)| *object == shared.object).map(|cache| cache.1);
            let owner = known.unwrap_or_else(|| {
                let owner = self.next_owner();
                self.caches.push((shared.object, owner, Restarts::default()));
                owner
            });
            (shared.range, owner)
        });
        Owners { shared, private }
    }

    /// Notes how often the opcache of a process has started anew, and forgets what was known if that was since the last
    /// time: true then.
    pub(crate) fn note_restarts(&mut self, owners: &Owners, restarts: Restarts) -> bool {
        let Some((_, owner)) = owners.shared else { return false };
        let cache = self.caches.iter_mut().find(|cache| cache.1 == owner);
        let Some(cache) = cache.filter(|cache| cache.2 != restarts) else { return false };
        cache.2 = restarts;
        self.functions.clear();
        self.calls.clear();
        self.paths.clear();
        true
    }

    /// Forgets a process that has ended.
    pub(crate) fn leave(&mut self, owners: &Owners) {
        self.functions.forget(owners.private);
        self.calls.forget(owners.private);
        self.paths.forget(owners.private);
    }

    fn next_owner(&mut self) -> Owner {
        self.owners += 1;
        Owner(self.owners)
    }
}

/// Whose memory the addresses of one process belong to.
#[derive(Debug)]
pub(crate) struct Owners {
    shared: Option<(Range, Owner)>,
    private: Owner,
}

impl Owners {
    pub(crate) fn place(&self, addr: RemoteAddr) -> CodeAddr {
        let shared = self.shared.filter(|(range, _)| range.find(addr, 1).is_some());
        CodeAddr { owner: shared.map_or(self.private, |(_, owner)| owner), addr }
    }

    /// Whether processes share what lies there.
    pub(crate) fn is_shared(&self, place: CodeAddr) -> bool {
        place.owner != self.private
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_has_one_owner_and_the_rest_one_each() {
        let shared = |inode, base| {
            let object = SharedObject { device: (0, 1), inode, base };
            Some(SharedRange { range: Range::new(RemoteAddr(0x1000), 0x1000), executable: false, object })
        };
        let mut code = CodeCache::default();
        let [first, second] = [(); 2].map(|()| code.enter(shared(7, 0x1000)));
        let other = code.enter(shared(8, 0x1000));
        let moved = code.enter(shared(7, 0x2000));
        let place = |owners: &Owners, addr| owners.place(RemoteAddr(addr));
        assert_eq!(place(&first, 0x1fff), place(&second, 0x1fff));
        assert!(first.is_shared(place(&first, 0x1000)) && !first.is_shared(place(&first, 0x2000)));
        assert_ne!(place(&first, 0x2000), place(&second, 0x2000));
        assert_ne!(place(&first, 0x1000), place(&other, 0x1000));
        assert_ne!(place(&first, 0x1000), place(&moved, 0x1000));
    }
}
