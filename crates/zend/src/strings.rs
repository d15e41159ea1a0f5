//! Text out of a target: never trusted to be text, to be short, or to end.

use std::borrow::Cow;

use slip_remote::{Memory, ReadError, RemoteAddr, read_c_string};

/// Longest function or class name that is kept; longer ones are cut and marked.
pub(crate) const MAX_NAME_BYTES: usize = 1_024;

/// Longest path that is kept: Linux knows no longer ones.
pub(crate) const MAX_PATH_BYTES: usize = 4_096;

/// What a cut text ends with.
const CUT: char = '…';

/// Bytes as text. Longer than `limit`, it is cut at a whole character and marked.
pub(crate) fn text(bytes: &[u8], limit: usize) -> Cow<'_, str> {
    let kept = &bytes[..bytes.len().min(limit)];
    let mut text = String::from_utf8_lossy(kept);
    if kept.len() < bytes.len() {
        let text = text.to_mut();
        // A character that the cut went through has become a replacement character.
        if std::str::from_utf8(kept).is_err_and(|error| error.error_len().is_none()) {
            text.pop();
        }
        text.push(CUT);
    }
    text
}

/// The part of a class name that PHP prints: anonymous classes go on with a NUL and where they were declared.
pub(crate) fn class_name(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A C string; empty for a null pointer and for what cannot be read.
pub(crate) fn c_string<M: Memory + ?Sized>(
    memory: &M,
    addr: RemoteAddr,
    limit: usize,
) -> Result<Vec<u8>, ReadError> {
    if addr.is_null() {
        return Ok(Vec::new());
    }
    match read_c_string(memory, addr, limit) {
        Err(ReadError::Unmapped { .. }) => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_broken_text_is_kept_readable() {
        assert_eq!(text(b"abc", 3), "abc");
        assert_eq!(text(b"abcd", 3), "abc…");
        assert_eq!(text("aéb".as_bytes(), 2), "a…");
        assert_eq!(text(&[b'a', 0xff], 9), "a\u{fffd}");
        assert_eq!(text(&[], 0), "");
    }

    #[test]
    fn anonymous_classes_end_at_the_nul() {
        assert_eq!(class_name(b"Base@anonymous\0/app/x.php:3$0"), b"Base@anonymous");
        assert_eq!(class_name(b""), b"");
    }
}
