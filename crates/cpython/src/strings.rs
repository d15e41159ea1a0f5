//! Text out of `str` objects.

use slip_remote::{Memory, Range, ReadError, RemoteAddr};

use crate::bytes::{u32_at, u64_at};
use crate::dicts::read_addr;
use crate::offsets::ObjectOffsets;

/// Longest text that we keep, in characters. Longer ones are cut and end in an ellipsis: a name that is longer is
/// generated, or what we read is no string.
const MAX_TEXT_CHARS: usize = 1_024;

/// Where the characters of a `str` object are, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// The characters, as far as we keep them.
    pub(crate) data: Range,
    /// Bytes per character.
    width: usize,
    cut: bool,
    /// The object keeps its characters elsewhere, and `data` is where the pointer to them stands.
    indirect: bool,
}

impl Text {
    /// Interprets the first `str_ascii` bytes of the object at `addr`; `None` if it can be no string.
    pub(crate) fn parse(offsets: &ObjectOffsets, addr: RemoteAddr, head: &[u8]) -> Option<Self> {
        let length = u64_at(head, offsets.str_length);
        let state = u32_at(head, offsets.str_state);
        // The bit fields of `PyASCIIObject.state`: interned 2 bits, kind 3, compact 1, ascii 1.
        let width = match (state >> 2) & 7 {
            1 => 1,
            2 => 2,
            4 => 4,
            _ => return None,
        };
        let (compact, ascii) = (state & 1 << 5 != 0, state & 1 << 6 != 0);
        let kept = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_TEXT_CHARS);
        let start = if compact && ascii { offsets.str_ascii } else { offsets.str_compact };
        Some(Self {
            data: Range::new(addr.offset(start as u64), kept * width),
            width,
            cut: length > kept as u64,
            indirect: !compact,
        })
    }

    /// The text, given the bytes of [`Text::data`]. What is no character becomes a replacement character.
    pub(crate) fn decode(&self, bytes: &[u8]) -> String {
        let mut text: String = bytes
            .chunks_exact(self.width)
            .map(|unit| {
                let mut number = [0; 4];
                number[..self.width].copy_from_slice(unit);
                char::from_u32(u32::from_le_bytes(number)).unwrap_or(char::REPLACEMENT_CHARACTER)
            })
            .collect();
        if self.cut {
            text.push('…');
        }
        text
    }

    /// Replaces the place of the pointer by the place that it points to.
    pub(crate) fn follow<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), ReadError> {
        if self.indirect {
            self.data.addr = read_addr(memory, self.data.addr)?;
            self.indirect = false;
        }
        Ok(())
    }
}

/// Reads the `str` object at `addr`; `None` if it can be no string.
pub(crate) fn read_text<M: Memory + ?Sized>(
    memory: &M,
    offsets: &ObjectOffsets,
    addr: RemoteAddr,
) -> Result<Option<String>, ReadError> {
    let mut head = vec![0; offsets.str_ascii];
    memory.read(addr, &mut head)?;
    let Some(mut text) = Text::parse(offsets, addr, &head) else { return Ok(None) };
    text.follow(memory)?;
    let mut bytes = vec![0; text.data.len];
    memory.read(text.data.addr, &mut bytes)?;
    Ok(Some(text.decode(&bytes)))
}

#[cfg(test)]
pub(crate) mod tests {
    use slip_remote::Image;

    use super::*;
    use crate::offsets::tests::OFFSETS;

    /// The bytes of a `str` object with these units of `width` bytes.
    pub(crate) fn string(units: &[u32], width: usize, ascii: bool) -> Vec<u8> {
        let object = &OFFSETS.object;
        let mut bytes = vec![0; if ascii { object.str_ascii } else { object.str_compact }];
        bytes[object.str_length..][..8].copy_from_slice(&(units.len() as u64).to_le_bytes());
        let state = (width as u32) << 2 | 1 << 5 | u32::from(ascii) << 6;
        bytes[object.str_state..][..4].copy_from_slice(&state.to_le_bytes());
        for unit in units {
            bytes.extend_from_slice(&unit.to_le_bytes()[..width]);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<String> {
        let mut image = Image::default();
        image.insert(RemoteAddr(0x1000), bytes);
        read_text(&image, &OFFSETS.object, RemoteAddr(0x1000)).unwrap()
    }

    #[test]
    fn characters_of_every_width() {
        assert_eq!(read(&string(&[0x61, 0x62], 1, true)).unwrap(), "ab");
        assert_eq!(read(&string(&[0xe4, 0xff], 1, false)).unwrap(), "äÿ");
        assert_eq!(read(&string(&[0x8a9e, 0x436], 2, false)).unwrap(), "語ж");
        assert_eq!(read(&string(&[0x1f40d], 4, false)).unwrap(), "🐍");
        assert_eq!(read(&string(&[], 1, true)).unwrap(), "");
    }

    #[test]
    fn what_is_no_character_is_replaced() {
        assert_eq!(read(&string(&[0xd83d, 0x61], 2, false)).unwrap(), "\u{fffd}a");
        assert_eq!(read(&string(&[0x11_0000, u32::MAX, 0x61], 4, false)).unwrap(), "\u{fffd}\u{fffd}a");
        assert_eq!(read(&string(&[0xff], 1, true)).unwrap(), "ÿ");
    }

    #[test]
    fn long_texts_are_cut() {
        let text = read(&string(&[0x61; MAX_TEXT_CHARS + 1], 1, true)).unwrap();
        assert_eq!(text, "a".repeat(MAX_TEXT_CHARS) + "…");
        assert_eq!(read(&string(&[0x61; MAX_TEXT_CHARS], 1, true)).unwrap().len(), MAX_TEXT_CHARS);
        let mut endless = string(&[0x61; MAX_TEXT_CHARS], 1, true);
        endless[OFFSETS.object.str_length..][..8].copy_from_slice(&(1_u64 << 63).to_le_bytes());
        assert_eq!(read(&endless).unwrap().chars().count(), MAX_TEXT_CHARS + 1);
    }

    #[test]
    fn an_unknown_kind_is_no_string() {
        let mut bytes = string(&[0x61], 1, true);
        bytes[OFFSETS.object.str_state] = 3 << 2;
        assert_eq!(read(&bytes), None);
    }

    #[test]
    fn characters_may_be_elsewhere() {
        let object = &OFFSETS.object;
        let mut bytes = string(&[0x61, 0x62], 1, false);
        bytes[object.str_state] = 1 << 2;
        bytes.truncate(object.str_compact);
        bytes.extend_from_slice(&0x2000_u64.to_le_bytes());
        let mut image = Image::default();
        image.insert(RemoteAddr(0x1000), &bytes);
        image.insert(RemoteAddr(0x2000), b"ok");
        assert_eq!(read_text(&image, object, RemoteAddr(0x1000)).unwrap().unwrap(), "ok");
    }
}
