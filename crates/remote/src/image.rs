//! Memory of an interpreter, saved to a file, so that its reader can be tested without the interpreter.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Memory, Range, ReadError, RemoteAddr, Symbols};

/// The bytes that a reader touched, and the symbols it asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Image {
    /// How the image was made and of what.
    pub about: String,
    symbols: BTreeMap<String, u64>,
    sections: BTreeMap<String, (u64, usize)>,
    /// If they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    thread_ids: Vec<u32>,
    /// Start address to bytes as hexadecimal text; pieces neither touch nor overlap.
    pieces: BTreeMap<u64, Hex>,
}

/// Bytes that are written as hexadecimal text.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hex(Vec<u8>);

impl From<Hex> for String {
    fn from(bytes: Hex) -> Self {
        bytes.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Hex {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) {
            return Err("an odd number of hexadecimal digits".into());
        }
        digits
            .chunks(2)
            .map(|pair| {
                let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
                u8::from_str_radix(pair, 16).map_err(|error| error.to_string())
            })
            .collect::<Result<Vec<u8>, String>>()
            .map(Hex)
    }
}

impl Image {
    /// Adds bytes, as a test does that makes up a target. Bytes that are there already are overwritten.
    pub fn insert(&mut self, addr: RemoteAddr, bytes: &[u8]) {
        let mut start = addr.0;
        let mut end = addr.0 + bytes.len() as u64;
        let touching: Vec<u64> = self
            .pieces
            .range(..=end)
            .filter(|(at, piece)| **at + piece.0.len() as u64 >= start)
            .map(|(at, _)| *at)
            .collect();
        let old: Vec<(u64, Hex)> =
            touching.iter().filter_map(|at| self.pieces.remove(at).map(|piece| (*at, piece))).collect();
        for (at, piece) in &old {
            start = start.min(*at);
            end = end.max(at + piece.0.len() as u64);
        }
        let mut merged = vec![0; usize::try_from(end - start).unwrap_or(0)];
        let mut place = |at: u64, piece: &[u8]| {
            let from = usize::try_from(at - start).unwrap_or(0);
            merged[from..from + piece.len()].copy_from_slice(piece);
        };
        for (at, piece) in &old {
            place(*at, &piece.0);
        }
        place(addr.0, bytes);
        self.pieces.insert(start, Hex(merged));
    }

    /// Adds a symbol.
    pub fn insert_symbol(&mut self, name: &str, addr: RemoteAddr) {
        self.symbols.insert(name.to_owned(), addr.0);
    }

    /// Adds a section.
    pub fn insert_section(&mut self, name: &str, range: Range) {
        self.sections.insert(name.to_owned(), (range.addr.0, range.len));
    }

    /// Bytes held.
    pub fn len_bytes(&self) -> usize {
        self.pieces.values().map(|piece| piece.0.len()).sum()
    }
}

impl Memory for Image {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let unmapped = ReadError::Unmapped { addr, len: buf.len() };
        let (start, piece) = self.pieces.range(..=addr.0).next_back().ok_or_else(|| unmapped.clone())?;
        let from = usize::try_from(addr.0 - start).map_err(|_| unmapped.clone())?;
        let to = from.checked_add(buf.len()).ok_or_else(|| unmapped.clone())?;
        buf.copy_from_slice(piece.0.get(from..to).ok_or(unmapped)?);
        Ok(())
    }
}

impl Symbols for Image {
    fn symbol(&self, name: &str) -> Option<RemoteAddr> {
        self.symbols.get(name).copied().map(RemoteAddr)
    }

    fn section(&self, name: &str) -> Option<Range> {
        self.sections.get(name).map(|(addr, len)| Range::new(RemoteAddr(*addr), *len))
    }

    fn thread_ids(&self) -> Vec<u32> {
        self.thread_ids.clone()
    }
}

/// Passes reads on to a live target and keeps what came back.
///
/// The target should be at rest: pieces read at different times are merged into one image.
#[derive(Debug)]
pub struct ImageRecorder<'a, T> {
    target: &'a T,
    image: RefCell<Image>,
}

impl<'a, T> ImageRecorder<'a, T> {
    /// Records what is read of `target`; `about` says what that is.
    pub fn new(target: &'a T, about: &str) -> Self {
        Self { target, image: RefCell::new(Image { about: about.to_owned(), ..Image::default() }) }
    }

    /// What was read.
    pub fn into_image(self) -> Image {
        self.image.into_inner()
    }
}

impl<T: Memory> Memory for ImageRecorder<'_, T> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.target.read(addr, buf)?;
        self.image.borrow_mut().insert(addr, buf);
        Ok(())
    }
}

impl<T: Symbols> Symbols for ImageRecorder<'_, T> {
    fn symbol(&self, name: &str) -> Option<RemoteAddr> {
        let found = self.target.symbol(name)?;
        self.image.borrow_mut().insert_symbol(name, found);
        Some(found)
    }

    fn section(&self, name: &str) -> Option<Range> {
        let found = self.target.section(name)?;
        self.image.borrow_mut().insert_section(name, found);
        Some(found)
    }

    fn thread_ids(&self) -> Vec<u32> {
        let found = self.target.thread_ids();
        self.image.borrow_mut().thread_ids.clone_from(&found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_merge_and_read_back() {
        let mut image = Image::default();
        image.insert(RemoteAddr(100), &[1, 2, 3]);
        image.insert(RemoteAddr(105), &[6]);
        image.insert(RemoteAddr(102), &[9, 4, 5]);
        let mut buf = [0; 6];
        image.read(RemoteAddr(100), &mut buf).unwrap();
        assert_eq!(buf, [1, 2, 9, 4, 5, 6]);
        assert!(image.read(RemoteAddr(101), &mut buf).is_err());
        assert!(image.read(RemoteAddr(u64::MAX), &mut buf).is_err());
    }

    #[test]
    fn an_image_survives_its_file() {
        let mut image = Image::default();
        image.insert(RemoteAddr(8), &[0xab, 0]);
        image.insert_symbol("_PyRuntime", RemoteAddr(8));
        let text = serde_json::to_string(&image).unwrap();
        let back: Image = serde_json::from_str(&text).unwrap();
        assert_eq!(back.symbol("_PyRuntime"), Some(RemoteAddr(8)));
        let mut buf = [0; 2];
        back.read(RemoteAddr(8), &mut buf).unwrap();
        assert_eq!(buf, [0xab, 0]);
        assert!(serde_json::from_str::<Image>(&text.replace("ab00", "ab0")).is_err());
    }
}
