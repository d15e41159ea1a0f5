//! The names that a program gives its threads.
//!
//! They are where the program itself looks them up: `sys.modules["threading"]._active[ident]._name`. The kernel's names
//! are not enough: before 3.14 CPython does not pass its own on, and the kernel cuts them after 15 bytes.

use slip_model::{Interner, StringId};
use slip_remote::{Memory, ReadError, RemoteAddr};

use crate::dicts::{find_attribute, find_int, find_text, read_addr};
use crate::offsets::{MODULE_DICT, ObjectOffsets};
use crate::strings::read_text;

/// First pause after which a name that was not there is looked up again. A thread runs a little before it is entered.
const FIRST_PAUSE_NS: u64 = 10_000_000;

/// Longest pause after which a name is looked up again: programs may rename a thread while it runs.
const LAST_PAUSE_NS: u64 = 5_000_000_000;

/// How long a program without the module `threading` is believed not to import it.
const MODULE_PAUSE_NS: u64 = 1_000_000_000;

/// The name of one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadName {
    /// Empty if there is none or it could not be read.
    pub(crate) text: StringId,
    due_ns: u64,
    pause_ns: u64,
}

/// Where an interpreter keeps the names of its threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameBook {
    /// `threading._active`. The module never replaces it.
    active: Option<RemoteAddr>,
    due_ns: u64,
}

/// Where and when to look.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) offsets: &'a ObjectOffsets,
    /// Where the pointer to `sys.modules` stands.
    pub(crate) modules: RemoteAddr,
    pub(crate) now_ns: u64,
}

impl NameBook {
    /// Looks the name of the thread `ident` up if it is time to.
    pub(crate) fn renew<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        place: &Place<'_>,
        interner: &mut Interner,
        ident: u64,
        name: &mut ThreadName,
    ) -> Result<(), ReadError> {
        if place.now_ns < name.due_ns {
            return Ok(());
        }
        let found = match self.find(memory, place, ident) {
            Ok(found) => found,
            // Dictionaries grow and move while we follow them. What `active` came from may have been such a one.
            Err(ReadError::Unmapped { .. }) => {
                self.active = None;
                None
            }
            Err(error) => return Err(error),
        };
        name.pause_ns = match &found {
            Some(_) => LAST_PAUSE_NS,
            None => (name.pause_ns * 2).clamp(FIRST_PAUSE_NS, LAST_PAUSE_NS),
        };
        name.due_ns = place.now_ns.saturating_add(name.pause_ns);
        if let Some(text) = found {
            name.text = interner.string(&text);
        }
        Ok(())
    }

    fn find<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        place: &Place<'_>,
        ident: u64,
    ) -> Result<Option<String>, ReadError> {
        let offsets = place.offsets;
        if self.active.is_none() {
            if place.now_ns < self.due_ns {
                return Ok(None);
            }
            self.due_ns = place.now_ns.saturating_add(MODULE_PAUSE_NS);
            let modules = read_addr(memory, place.modules)?;
            let Some(threading) = find_text(memory, offsets, modules, "threading")? else { return Ok(None) };
            let namespace = read_addr(memory, threading.offset(MODULE_DICT))?;
            self.active = find_text(memory, offsets, namespace, "_active")?;
        }
        let Some(active) = self.active else { return Ok(None) };
        let Some(thread) = find_int(memory, offsets, active, ident)? else { return Ok(None) };
        match find_attribute(memory, offsets, thread, "_name")? {
            Some(name) => read_text(memory, offsets, name),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::Target;

    #[test]
    fn names_are_looked_for_anew_after_a_torn_look_at_the_modules() {
        let target = Target::new();
        let mut interner = Interner::new();
        let (mut book, mut name) = (NameBook::default(), ThreadName::default());
        // Nothing is mapped there.
        book.active = Some(RemoteAddr(8));
        let place = Place { offsets: &target.offsets.object, modules: RemoteAddr::NULL, now_ns: 0 };
        book.renew(&target.image, &place, &mut interner, 1, &mut name).unwrap();
        assert_eq!(book.active, None);
    }
}
