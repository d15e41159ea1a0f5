//! What a call instruction calls, as far as the code says so by name.
//!
//! A stack changes while it is copied, and no comparison of copies notices a frame that was replaced and put back. But
//! the caller's instruction often names its callee, and a caller that is at a call of `f` has not called `g`.

use std::collections::HashMap;

use slip_model::StringId;
use slip_remote::{Memory, ReadError, RemoteAddr};

use crate::bytes::{AddrHash, addr_at, u8_at, u32_at, u64_at};
use crate::code::{CodeAddr, Owner, Owners};
use crate::functions::{Function, Opline};
use crate::offsets::Offsets;
use crate::strings::MAX_NAME_BYTES;

/// How many instructions before a call its beginning is looked for: the arguments are computed between the two.
const MAX_ARGUMENT_OPS: usize = 64;

/// Most call sites that are remembered; then all are forgotten.
const MAX_SITES: usize = 65_536;

/// After so many callees of another name, and none of the expected one, a site is believed to call by another name.
const MAX_SURPRISES: u8 = 3;

/// One call in the code.
#[derive(Clone, Copy, Debug)]
struct Site {
    /// What was there when it was read: another function may come to lie at the same address.
    caller: (StringId, StringId, u32),
    /// Hash of the name that the code calls; `None` if it calls by other means.
    name: Option<u64>,
    confirmed: bool,
    surprises: u8,
}

/// Call sites seen so far.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    sites: HashMap<CodeAddr, Site, AddrHash>,
    /// Names by the address of their text: those in shared memory stand there once for all calls.
    names: HashMap<CodeAddr, Option<u64>, AddrHash>,
}

/// Stands for a function's name, whatever its namespace and case: code in a namespace calls global functions without
/// saying so.
pub(crate) fn hash_of_name(name: &[u8]) -> u64 {
    let last = name.rsplit(|byte| *byte == b'\\').next().unwrap_or_default();
    // FNV-1a.
    last.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Calls {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.sites.clear();
        self.names.clear();
    }

    /// Forgets the calls in the memory of a process that has ended.
    pub(crate) fn forget(&mut self, owner: Owner) {
        self.sites.retain(|at, _| at.owner != owner);
    }

    /// Whether the call that `caller` makes at `at` can have led to a function called `callee`.
    pub(crate) fn fits<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        owners: &Owners,
        (caller, at, op): (&Function, CodeAddr, Opline),
        callee: u64,
    ) -> Result<bool, ReadError> {
        let key = (caller.name, caller.file, op.lineno);
        let known = self.sites.get_mut(&at).filter(|site| site.caller == key);
        let site = match known {
            Some(site) => site,
            None => {
                if self.sites.len() >= MAX_SITES {
                    self.clear();
                }
                let name = self.name_called(memory, offsets, owners, caller.opcodes(), at.addr)?;
                self.sites.insert(at, Site { caller: key, name, confirmed: false, surprises: 0 });
                let Some(site) = self.sites.get_mut(&at) else { return Ok(true) };
                site
            }
        };
        let Some(name) = site.name else { return Ok(true) };
        if name == callee {
            site.confirmed = true;
            return Ok(true);
        }
        site.surprises = site.surprises.saturating_add(1);
        if !site.confirmed && site.surprises >= MAX_SURPRISES {
            site.name = None;
        }
        Ok(false)
    }

    /// Hash of the name that the call at `addr` calls: it stands in the instruction that began the call.
    fn name_called<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        owners: &Owners,
        opcodes: RemoteAddr,
        addr: RemoteAddr,
    ) -> Result<Option<u64>, ReadError> {
        let found = name_place(memory, offsets, opcodes, addr).and_then(|place| {
            let Some(place) = place else { return Ok(None) };
            let place = owners.place(place);
            if let Some(known) = self.names.get(&place) {
                return Ok(*known);
            }
            let name = read_name(memory, offsets, place.addr)?.map(|name| hash_of_name(&name));
            if owners.is_shared(place) {
                self.names.insert(place, name);
            }
            Ok(name)
        });
        match found {
            Err(ReadError::Unmapped { .. }) => Ok(None),
            other => other,
        }
    }
}

/// Where the text of the name lies that the call at `addr` calls.
fn name_place<M: Memory + ?Sized>(
    memory: &M,
    offsets: &Offsets,
    opcodes: RemoteAddr,
    addr: RemoteAddr,
) -> Result<Option<RemoteAddr>, ReadError> {
    let table = &offsets.op;
    let before = usize::try_from(addr.0.saturating_sub(opcodes.0)).unwrap_or(0);
    let len = before.min(MAX_ARGUMENT_OPS * table.size);
    let start = RemoteAddr(addr.0 - len as u64);
    let mut code = vec![0; len];
    memory.read(start, &mut code)?;
    let Some(at) = begin_of_call(offsets, &code) else { return Ok(None) };
    let op = &code[at * table.size..];
    let by_name = [
        table.zend_init_fcall,
        table.zend_init_fcall_by_name,
        table.zend_init_ns_fcall_by_name,
        table.zend_init_method_call,
        table.zend_init_static_method_call,
    ];
    if !by_name.contains(&u8_at(op, table.opcode)) || u8_at(op, table.op2_type) != table.is_const {
        return Ok(None);
    }
    // `RT_CONSTANT`: literals are found relative to the instruction.
    let distance = i64::from(u32_at(op, table.op2_constant).cast_signed());
    let literal = start.offset((at * table.size) as u64).0.wrapping_add_signed(distance);
    let mut zval = vec![0; offsets.zval.size];
    memory.read(RemoteAddr(literal), &mut zval)?;
    Ok((u8_at(&zval, offsets.zval.type_info) == offsets.zval.is_string).then(|| addr_at(&zval, 0)))
}

/// The text of a `zend_string`; `None` if it is too long for a name.
fn read_name<M: Memory + ?Sized>(
    memory: &M,
    offsets: &Offsets,
    string: RemoteAddr,
) -> Result<Option<Vec<u8>>, ReadError> {
    let mut head = vec![0; offsets.string.val];
    memory.read(string, &mut head)?;
    let len = usize::try_from(u64_at(&head, offsets.string.len)).unwrap_or(usize::MAX);
    if len > MAX_NAME_BYTES {
        return Ok(None);
    }
    let mut name = vec![0; len];
    memory.read(string.offset(offsets.string.val as u64), &mut name)?;
    Ok(Some(name))
}

/// Which of the instructions before a call began it: calls among its arguments begin and end in between.
fn begin_of_call(offsets: &Offsets, code: &[u8]) -> Option<usize> {
    let table = &offsets.op;
    let begins = [
        table.zend_init_fcall,
        table.zend_init_fcall_by_name,
        table.zend_init_ns_fcall_by_name,
        table.zend_init_method_call,
        table.zend_init_static_method_call,
        table.zend_init_user_call,
        table.zend_init_dynamic_call,
        table.zend_new,
    ];
    let ends = [
        table.zend_do_fcall,
        table.zend_do_icall,
        table.zend_do_ucall,
        table.zend_do_fcall_by_name,
        table.zend_callable_convert,
    ];
    let mut open = 0_u32;
    for (at, op) in code.chunks_exact(table.size).enumerate().rev() {
        let opcode = u8_at(op, table.opcode);
        if ends.contains(&opcode) {
            open += 1;
        } else if begins.contains(&opcode) || table.zend_init_parent_property_hook_call == Some(opcode) {
            match open.checked_sub(1) {
                Some(rest) => open = rest,
                None => return Some(at),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offsets::ANY;

    #[test]
    fn names_are_the_same_in_any_case_and_namespace() {
        assert_eq!(hash_of_name(b"App\\Util\\StrLen"), hash_of_name(b"strlen"));
        assert_ne!(hash_of_name(b"strlen"), hash_of_name(b"strpos"));
    }

    #[test]
    fn a_call_begins_before_the_calls_in_its_arguments() {
        let op = &ANY.op;
        let code = |opcodes: &[u8]| -> Vec<u8> {
            opcodes
                .iter()
                .flat_map(|opcode| {
                    let mut bytes = vec![0; op.size];
                    bytes[op.opcode] = *opcode;
                    bytes
                })
                .collect()
        };
        // f(g($x), $y->h()) up to the last call.
        let nested = [
            op.zend_init_fcall,
            op.zend_init_fcall,
            117,
            op.zend_do_ucall,
            117,
            op.zend_init_method_call,
            op.zend_do_fcall,
            117,
        ];
        assert_eq!(begin_of_call(ANY, &code(&nested)), Some(0));
        assert_eq!(begin_of_call(ANY, &code(&nested[..3])), Some(1));
        assert_eq!(begin_of_call(ANY, &code(&nested[1..4])), None);
        assert_eq!(begin_of_call(ANY, &[]), None);
    }
}
