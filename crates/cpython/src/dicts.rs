//! Dictionaries and attributes of the target.

use slip_remote::{Memory, Range, ReadError, RemoteAddr, read_u64};

use crate::bytes::{addr_at, u32_at, u64_at};
use crate::code::read_all;
use crate::offsets::{ManagedDict, ObjectOffsets, dict_keys};
use crate::strings::Text;

/// Most entries of a dictionary that we look at. `sys.modules` of a large program has some thousands.
const MAX_ENTRIES: u64 = 128 * 1_024;

/// How far within an object its `__dict__` may be.
const MAX_DICT_OFFSET: u64 = 64 * 1_024;

/// `Py_TPFLAGS_MANAGED_DICT`
const MANAGED_DICT: u64 = 1 << 4;

/// `Py_TPFLAGS_INLINE_VALUES`
const INLINE_VALUES: u64 = 1 << 2;

/// `PyDictValues.valid`, where values are inline.
const VALUES_VALID: u64 = 3;

/// One entry of a dictionary's keys.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// 0 where entries have none.
    hash: u64,
    key: RemoteAddr,
    value: RemoteAddr,
}

/// The value under the string `key` in the dictionary at `dict`.
pub(crate) fn find_text<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    dict: RemoteAddr,
    key: &str,
) -> Result<Option<RemoteAddr>, ReadError> {
    let (keys, values) = read_dict(memory, offsets, dict)?;
    let (entries, _) = read_entries(memory, offsets, keys)?;
    let Some(at) = position(memory, offsets, &entries, key)? else { return Ok(None) };
    if values.is_null() { Ok(non_null(entries[at].value)) } else { read_value(memory, offsets, values, at) }
}

/// The value under the integer `key` in the dictionary at `dict`.
pub(crate) fn find_int<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    dict: RemoteAddr,
    key: u64,
) -> Result<Option<RemoteAddr>, ReadError> {
    /// The hash of a number is its remainder by this prime number.
    const MODULUS: u64 = (1 << 61) - 1;
    let (keys, values) = read_dict(memory, offsets, dict)?;
    let (entries, kind) = read_entries(memory, offsets, keys)?;
    if kind != dict_keys::GENERAL || !values.is_null() {
        return Ok(None);
    }
    let found = entries.iter().find(|entry| entry.hash == key % MODULUS && !entry.value.is_null());
    Ok(found.map(|entry| entry.value))
}

/// The value of the attribute `name` in the `__dict__` of the object at `object`, where the interpreter manages it, as it does that of
/// each object of a class of Python's.
pub(crate) fn find_attribute<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    object: RemoteAddr,
    name: &str,
) -> Result<Option<RemoteAddr>, ReadError> {
    let ob_type = read_addr(memory, object.offset(offsets.ob_type as u64))?;
    if let ManagedDict::Plain { tp_dictoffset } = offsets.managed_dict {
        let at = read_addr(memory, ob_type.offset(tp_dictoffset))?.0;
        // Objects of variable size count it from their end, and have no names that we look for.
        if at == 0 || at > MAX_DICT_OFFSET {
            return Ok(None);
        }
        let dict = read_addr(memory, object.offset(at))?;
        return if dict.is_null() { Ok(None) } else { find_text(memory, offsets, dict, name) };
    }
    let type_fields = [offsets.tp_flags, offsets.tp_basicsize, offsets.cached_keys];
    let ranges = type_fields.map(|field| Range::new(ob_type.offset(field as u64), 8));
    let fields = read_all(memory, &ranges[..2])?;
    let (flags, basicsize) = (u64_at(&fields, 0), u64_at(&fields, 8));
    if flags & MANAGED_DICT == 0 {
        return Ok(None);
    }
    let before = |bytes: u64| RemoteAddr(object.0.wrapping_sub(bytes));
    let (dict, values) = match offsets.managed_dict {
        ManagedDict::Plain { .. } => return Ok(None),
        ManagedDict::Pair { dict, values } => {
            (read_addr(memory, before(dict))?, read_addr(memory, before(values))?)
        }
        ManagedDict::Tagged { either } => {
            let either = read_addr(memory, before(either))?;
            match either.0 & 1 {
                // What is stored is the address minus one.
                1 => (RemoteAddr::NULL, either.offset(1)),
                _ => (either, RemoteAddr::NULL),
            }
        }
        ManagedDict::Inline { dict } => {
            let values = object.offset(basicsize);
            let mut valid = [0];
            if flags & INLINE_VALUES != 0 {
                memory.read(values.offset(VALUES_VALID), &mut valid)?;
            }
            (read_addr(memory, before(dict))?, if valid == [1] { values } else { RemoteAddr::NULL })
        }
    };
    if !dict.is_null() {
        return find_text(memory, offsets, dict, name);
    }
    if values.is_null() {
        return Ok(None);
    }
    let keys = read_addr(memory, ranges[2].addr)?;
    let (entries, _) = read_entries(memory, offsets, keys)?;
    match position(memory, offsets, &entries, name)? {
        Some(at) => read_value(memory, offsets, values, at),
        None => Ok(None),
    }
}

/// The pointer at `addr`.
pub(crate) fn read_addr<M: Memory + ?Sized>(memory: &M, addr: RemoteAddr) -> Result<RemoteAddr, ReadError> {
    read_u64(memory, addr).map(RemoteAddr)
}

fn non_null(addr: RemoteAddr) -> Option<RemoteAddr> {
    (!addr.is_null()).then_some(addr)
}

/// The keys and, if they are kept apart, the values of a dictionary.
fn read_dict<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    dict: RemoteAddr,
) -> Result<(RemoteAddr, RemoteAddr), ReadError> {
    let fields = [offsets.dict_keys, offsets.dict_values];
    let bytes = read_all(memory, &fields.map(|field| Range::new(dict.offset(field as u64), 8)))?;
    Ok((addr_at(&bytes, 0), addr_at(&bytes, 8)))
}

/// Value number `at` of values that are kept apart.
fn read_value<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    values: RemoteAddr,
    at: usize,
) -> Result<Option<RemoteAddr>, ReadError> {
    let place = values.offset(offsets.values_first as u64 + 8 * at as u64);
    Ok(non_null(read_addr(memory, place)?))
}

/// The entries of `PyDictKeysObject` at `keys`, in their order, and its kind.
fn read_entries<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    keys: RemoteAddr,
) -> Result<(Vec<Entry>, u8), ReadError> {
    use dict_keys::old;
    let mut head = [0; old::INDICES];
    let (kind, count, first);
    if let ManagedDict::Plain { .. } = offsets.managed_dict {
        memory.read(keys, &mut head)?;
        kind = dict_keys::GENERAL;
        count = u64_at(&head, old::NENTRIES);
        let size = u64_at(&head, old::SIZE);
        // The smallest signed number that holds an index, and -1 and -2 besides.
        let bytes = match size {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        first = keys.offset(old::INDICES as u64).offset(size.wrapping_mul(bytes));
    } else {
        let head = &mut head[..dict_keys::INDICES];
        memory.read(keys, head)?;
        kind = head[dict_keys::KIND];
        count = u64_at(head, dict_keys::NENTRIES);
        let index_bytes = 1_u64.checked_shl(head[dict_keys::LOG2_INDEX_BYTES].into()).unwrap_or(0);
        first = keys.offset(dict_keys::INDICES as u64).offset(index_bytes);
    }
    let count = count.min(MAX_ENTRIES);
    let words = if kind == dict_keys::GENERAL { 3 } else { 2 };
    let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * words * 8];
    memory.read(first, &mut bytes)?;
    let entries = bytes
        .chunks_exact(words * 8)
        .map(|entry| Entry {
            hash: if words == 3 { u64_at(entry, 0) } else { 0 },
            key: addr_at(entry, (words - 2) * 8),
            value: addr_at(entry, (words - 1) * 8),
        })
        .collect();
    Ok((entries, kind))
}

/// Which entry has the ASCII string `name` for its key.
fn position<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    entries: &[Entry],
    name: &str,
) -> Result<Option<usize>, ReadError> {
    // Keys are compared in groups: a system call per key would be slow with thousands of modules.
    const GROUP: usize = 256;
    let len = offsets.str_ascii + name.len();
    for (group, keys) in entries.chunks(GROUP).enumerate() {
        let ranges: Vec<Range> = keys.iter().map(|entry| Range::new(entry.key, len)).collect();
        let mut bytes = vec![0; ranges.len() * len];
        let mut done = 0;
        while done < ranges.len() {
            done += memory.read_ranges(&ranges[done..], &mut bytes[done * len..])?;
            // This key is null (a deleted entry), or a short string at the end of what is mapped: not the one.
            done += 1;
        }
        let found = bytes.chunks_exact(len).enumerate().position(|(at, key)| {
            let text = Text::parse(offsets, keys[at].key, key);
            u64_at(key, offsets.str_length) == name.len() as u64
                && text.is_some_and(|text| text.data.addr == keys[at].key.offset(offsets.str_ascii as u64))
                && u32_at(key, offsets.str_state) >> 2 & 7 == 1
                && key.ends_with(name.as_bytes())
        });
        if let Some(at) = found {
            return Ok(Some(group * GROUP + at));
        }
    }
    Ok(None)
}
