//! `/proc/PID/maps`, parsed.

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Readable.
    pub readable: bool,
    /// Executable.
    pub executable: bool,
    /// Shared with other processes (`MAP_SHARED`), like opcache's memory.
    pub shared: bool,
    /// Offset of `start` in the file.
    pub file_offset: u64,
    /// Device of the file, as `maj:min` in hexadecimal.
    pub device: String,
    /// Inode of the file; 0 for anonymous memory.
    pub inode: u64,
    /// Path, ` (deleted)` removed; empty for anonymous memory. It begins at the root of the target's mount namespace if
    /// that is another one, else at the reader's root, also where the target has changed its own (`chroot`).
    pub path: String,
    /// The file was removed or replaced since it was mapped.
    pub deleted: bool,
}

/// Parses the text of `/proc/PID/maps`. Lines that do not fit the format are left out.
pub fn parse_maps(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_line).collect()
}

pub(crate) fn parse_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let device = fields.next()?.to_owned();
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or("").trim_start();
    let deleted = path.ends_with(" (deleted)");
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        readable: permissions.first() == Some(&b'r'),
        executable: permissions.get(2) == Some(&b'x'),
        shared: permissions.get(3) == Some(&b's'),
        file_offset,
        device,
        inode,
        path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
        deleted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds() {
        let text = "55d0c0a00000-55d0c0a21000 r-xp 00001000 fe:01 1234       /usr/bin/a b (deleted)\n\
                    7f00-8f00 rw-s 00000000 00:01 77 /dev/zero\n\
                    7ffd1000-7ffd2000 rw-p 00000000 00:00 0 \n\
                    garbage\n";
        let maps = parse_maps(text);
        assert_eq!(maps.len(), 3);
        assert_eq!(
            (maps[0].path.as_str(), maps[0].deleted, maps[0].file_offset),
            ("/usr/bin/a b", true, 0x1000)
        );
        assert!(maps[0].executable && !maps[0].shared);
        assert!(maps[1].shared && maps[1].readable && !maps[1].executable);
        assert_eq!((maps[2].path.as_str(), maps[2].inode), ("", 0));
    }
}
