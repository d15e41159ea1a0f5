//! Versions of CPython.

use std::fmt;

/// The versions that can be read, for messages.
pub const SUPPORTED: &str = "3.8 to 3.15";

/// Minor versions of CPython 3 that can be read.
pub(crate) const SUPPORTED_MINORS: std::ops::RangeInclusive<u8> = 8..=15;

/// A version of CPython, as `PY_VERSION_HEX` packs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// The version behind a `PY_VERSION_HEX`.
    pub fn from_hex(hex: u32) -> Self {
        Self(hex)
    }

    /// The 3 of 3.13.1.
    pub fn major(self) -> u8 {
        self.0.to_be_bytes()[0]
    }

    /// The 13 of 3.13.1.
    pub fn minor(self) -> u8 {
        self.0.to_be_bytes()[1]
    }

    /// The 1 of 3.13.1.
    pub fn micro(self) -> u8 {
        self.0.to_be_bytes()[2]
    }

    /// Whether it is an alpha or a beta: its structures may differ from those of the release.
    pub fn is_unfinished(self) -> bool {
        matches!(self.level(), 0xa | 0xb)
    }

    fn level(self) -> u8 {
        self.0.to_be_bytes()[3] >> 4
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.micro())?;
        let serial = self.0 & 0xf;
        match self.level() {
            0xa => write!(f, "a{serial}"),
            0xb => write!(f, "b{serial}"),
            0xc => write!(f, "rc{serial}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(Version::from_hex(0x030d_01f0).to_string(), "3.13.1");
        assert_eq!(Version::from_hex(0x030f_00b2).to_string(), "3.15.0b2");
        assert!(Version::from_hex(0x030f_00b2).is_unfinished());
        assert_eq!(Version::from_hex(0x030f_00c1).to_string(), "3.15.0rc1");
        assert!(!Version::from_hex(0x030f_00c1).is_unfinished());
    }
}
