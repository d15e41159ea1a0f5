//! Connections that workers of PHP keep by the extension: what it counts in memory of theirs, `ext/src/kept_page.h`.

use std::fs;

use slip_remote::{LiveProcess, Memory as _, RemoteAddr, parse_maps};

use crate::TargetIssue;
use crate::process::issue_of;

/// What this memory is called in `/proc/PID/maps`.
const NAME: &str = "/memfd:slipstream-connections";
const MAGIC: u32 = 0x6b70_6c73;
const VERSION: u32 = 3;
const NAME_BYTES: usize = 128;
/// Most servers that an extension names.
const SERVERS: usize = 16;

/// Why connections were not kept, or not used again, in the order in which they are counted.
pub const KEPT_REASONS: [&str; 14] = [
    "closed",
    "unread",
    "half",
    "stays",
    "late",
    "timeout",
    "old",
    "full",
    "unknown",
    "encrypted",
    "exported",
    "forked",
    "options",
    "replay",
];

const COUNTS_BYTES: usize = NAME_BYTES + 8 * (7 + KEPT_REASONS.len());
/// `struct slip_kept_page`
const PAGE_BYTES: usize = 16 + SERVERS * COUNTS_BYTES;

/// A server, and what became of the connections to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptServer {
    /// As `slipstream.keep` has it.
    pub name: String,
    /// How often a client connected.
    pub asked: u64,
    /// How often it got a connection of before.
    pub reused: u64,
    /// How often a new one was made and waited for.
    pub connected: u64,
    /// What those of before took, together.
    pub reused_ns: u64,
    /// What the new ones took, together.
    pub connected_ns: u64,
    /// Connections that nobody has at the moment.
    pub parked: u64,
    /// Connections on which the password or the database of a boot was said again.
    pub replayed: u64,
    /// Those that were not kept, by [`KEPT_REASONS`].
    pub refused: [u64; KEPT_REASONS.len()],
}

impl KeptServer {
    /// What connections of before have saved, if new ones would have taken as long as those that were made, nanoseconds.
    pub fn saved_ns(&self) -> u64 {
        let new = u128::from(self.connected_ns) * u128::from(self.reused);
        let new = new.checked_div(self.connected.into()).unwrap_or_default();
        u64::try_from(new).unwrap_or(u64::MAX).saturating_sub(self.reused_ns)
    }

    /// What has been counted since it was `before`; how many are parked is as it is now.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut less = Self {
            name: self.name.clone(),
            asked: self.asked.saturating_sub(before.asked),
            reused: self.reused.saturating_sub(before.reused),
            connected: self.connected.saturating_sub(before.connected),
            reused_ns: self.reused_ns.saturating_sub(before.reused_ns),
            connected_ns: self.connected_ns.saturating_sub(before.connected_ns),
            parked: self.parked,
            replayed: self.replayed.saturating_sub(before.replayed),
            refused: self.refused,
        };
        less.refused
            .iter_mut()
            .zip(before.refused)
            .for_each(|(count, before)| *count = count.saturating_sub(before));
        less
    }

    /// Adds those of another worker.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.asked, other.asked),
            (&mut self.reused, other.reused),
            (&mut self.connected, other.connected),
            (&mut self.reused_ns, other.reused_ns),
            (&mut self.connected_ns, other.connected_ns),
            (&mut self.parked, other.parked),
            (&mut self.replayed, other.replayed),
        ];
        let refused = self.refused.iter_mut().zip(other.refused);
        sums.into_iter().chain(refused).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

/// What process `pid` has kept, by server; `None` if it has no extension that keeps connections.
///
/// # Errors
///
/// If its memory cannot be read.
pub fn kept_connections(pid: u32) -> Result<Option<Vec<KeptServer>>, TargetIssue> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let process = LiveProcess::open(pid).map_err(issue_of)?;
    let Some(mapping) = parse_maps(&maps).into_iter().find(|mapping| mapping.path == NAME) else {
        return Ok(None);
    };
    let mut page = vec![0; PAGE_BYTES];
    let is_whole = mapping.end.saturating_sub(mapping.start) >= PAGE_BYTES as u64;
    if !is_whole || process.read(RemoteAddr(mapping.start), &mut page).is_err() {
        return Ok(None);
    }
    Ok(parse_kept(&page))
}

/// What the memory says; `None` if it is of another version.
pub fn parse_kept(page: &[u8]) -> Option<Vec<KeptServer>> {
    let word = |at: usize| Some(u32::from_le_bytes(*page.get(at..)?.first_chunk()?));
    if [word(0)?, word(4)?] != [MAGIC, VERSION] {
        return None;
    }
    let servers = page.get(16..)?.chunks_exact(COUNTS_BYTES);
    servers.take(usize::try_from(word(8)?).ok()?.min(SERVERS)).map(server).collect()
}

fn server(bytes: &[u8]) -> Option<KeptServer> {
    let (name, counts) = bytes.split_at_checked(NAME_BYTES)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
    let count = |at: usize| Some(u64::from_le_bytes(*counts.get(8 * at..)?.first_chunk()?));
    let mut server = KeptServer {
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        asked: count(0)?,
        reused: count(1)?,
        connected: count(2)?,
        reused_ns: count(3)?,
        connected_ns: count(4)?,
        parked: count(5)?,
        replayed: count(6)?,
        ..KeptServer::default()
    };
    for (at, refused) in server.refused.iter_mut().enumerate() {
        *refused = count(7 + at)?;
    }
    Some(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with one server.
    fn page() -> Vec<u8> {
        let mut page: Vec<u8> = [MAGIC, VERSION, 1, 0].into_iter().flat_map(u32::to_le_bytes).collect();
        let mut name = b"redis://127.0.0.1:6379".to_vec();
        name.resize(NAME_BYTES, 0);
        page.extend(name);
        // asked, reused, connected, reused_ns, connected_ns, parked, replayed, and refused: closed is 7, the others are 0.
        let counts = [10_u64, 8, 2, 8_000, 100_000, 1, 3, 7];
        page.extend(counts.into_iter().flat_map(u64::to_le_bytes));
        page.resize(PAGE_BYTES, 0);
        page
    }

    #[test]
    fn counts_are_read_and_added() {
        let servers = parse_kept(&page()).unwrap();
        let [server] = &servers[..] else { panic!("{servers:?}") };
        assert_eq!(
            (&*server.name, server.asked, server.parked, server.replayed),
            ("redis://127.0.0.1:6379", 10, 1, 3)
        );
        // 8 times 50 us, less what it took.
        assert_eq!((server.saved_ns(), server.refused[0], server.refused[1]), (392_000, 7, 0));
        let mut sum = server.clone();
        sum.add(server);
        assert_eq!((sum.reused, sum.refused[0]), (16, 14));
        let since = sum.since(server);
        assert_eq!((since.reused, since.connected_ns, since.replayed, since.refused[0]), (8, 100_000, 3, 7));
    }

    #[test]
    fn what_is_not_of_this_version_is_nothing() {
        let mut other = page();
        other[4] = 1;
        assert_eq!((parse_kept(&other), parse_kept(&[]), parse_kept(&page()[..12])), (None, None, None));
        // More servers than there is room for.
        let mut many = page();
        many[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse_kept(&many).unwrap().len(), SERVERS);
    }
}
