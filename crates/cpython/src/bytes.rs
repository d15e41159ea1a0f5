//! Numbers out of bytes that were read from a target.

use slip_remote::RemoteAddr;

/// The little-endian number of 8 bytes at `at`; 0 if `bytes` ends before.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    array(bytes, at).map_or(0, u64::from_le_bytes)
}

/// The little-endian number of 4 bytes at `at`; 0 if `bytes` ends before.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    array(bytes, at).map_or(0, u32::from_le_bytes)
}

/// The pointer at `at`; null if `bytes` ends before.
pub(crate) fn addr_at(bytes: &[u8], at: usize) -> RemoteAddr {
    RemoteAddr(u64_at(bytes, at))
}

fn array<const LEN: usize>(bytes: &[u8], at: usize) -> Option<[u8; LEN]> {
    bytes.get(at..at.checked_add(LEN)?)?.try_into().ok()
}
