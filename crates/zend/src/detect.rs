//! Finds out whether a process runs PHP, and which.

use std::fmt;

use slip_remote::{Memory, ReadError, RemoteAddr, Symbols, read_u64};
use thiserror::Error;

use crate::bytes::{addr_at, u8_at, u32_at};
use crate::offsets::{self, ANY};
use crate::strings::{c_string, text};

/// How many entries of the module registry are looked at for the engine's own module, which is the first.
const MAX_MODULES: usize = 8;

/// Longest version and name of a server interface that are kept: `8.2.36-dev+custom`, `fpm-fcgi`.
const MAX_SHORT_TEXT_BYTES: usize = 64;

/// Which PHP a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major version.
    pub major: u8,
    /// Minor version.
    pub minor: u8,
    /// The whole version as PHP itself says it: `8.2.36`.
    pub text: String,
    /// Name of the server interface, as `php_sapi_name()` says it: `fpm-fcgi`, `cli`, `apache2handler`.
    pub sapi: String,
    /// `ZEND_MODULE_API_NO`: names the layout of everything.
    pub(crate) zend_module_api_no: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PHP {} ({})", self.text, self.sapi)
    }
}

/// Why a process cannot be read as PHP.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// It does not run PHP.
    #[error("the process does not run PHP")]
    NotPhp,
    /// PHP has not finished starting. Try again a moment later.
    #[error("PHP is still starting")]
    NotReady,
    /// PHP was built with thread safety (ZTS), which keeps everything elsewhere.
    #[error("{found} is a thread-safe (ZTS) build; supported: {}", supported_versions())]
    ThreadSafe {
        /// What it is.
        found: String,
    },
    /// PHP was built with debug checks, which lays out everything differently.
    #[error("{found} is a debug build; supported: {}", supported_versions())]
    DebugBuild {
        /// What it is.
        found: String,
    },
    /// There is no table for this version.
    #[error("{found} is not supported; supported: {}", supported_versions())]
    Unsupported {
        /// What it is.
        found: String,
    },
    /// Its memory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The versions that can be read, for people: `PHP 8.2, 8.4 (non-thread-safe release builds)`.
pub fn supported_versions() -> String {
    let versions: Vec<String> =
        offsets::versions().map(|(major, minor)| format!("{major}.{minor}")).collect();
    format!("PHP {} (non-thread-safe release builds)", versions.join(", "))
}

/// Which PHP `target` runs; `None` if it does not run PHP.
///
/// Looks at exported symbols only, so it works on stripped builds: the registry of modules, whose first entry is the
/// engine's own and carries the API number, the build flags and the exact version.
///
/// # Errors
///
/// Every [`AttachError`] except `NotPhp`. `NotReady` is worth another try; a build that we do not read is not.
pub fn detect<T: Memory + Symbols + ?Sized>(target: &T) -> Result<Option<Version>, AttachError> {
    if target.symbol("executor_globals").is_none() {
        // With thread safety the globals are not variables; only their place within a thread's block is exported.
        return match target.symbol("executor_globals_offset") {
            Some(_) => Err(AttachError::ThreadSafe { found: "PHP".into() }),
            None => Ok(None),
        };
    }
    let symbols = ["module_registry", "sapi_module", "sapi_globals", "compiler_globals"];
    let [Some(registry), Some(sapi_module), Some(_), Some(compiler_globals)] =
        symbols.map(|name| target.symbol(name))
    else {
        return Ok(None);
    };
    let not_ready = |error: ReadError| match error {
        ReadError::Unmapped { .. } => AttachError::NotReady,
        other => AttachError::Read(other),
    };
    let function_table = compiler_globals.offset(ANY.compiler_globals.function_table as u64);
    if read_u64(target, function_table).map_err(not_ready)? == 0 {
        return Err(AttachError::NotReady);
    }
    let module = engine_module(target, registry).map_err(not_ready)?.ok_or(AttachError::NotReady)?;
    let entry = &ANY.module_entry;
    let api = u32_at(&module, entry.zend_api);
    let version =
        text(&c_string(target, addr_at(&module, entry.version), MAX_SHORT_TEXT_BYTES)?, MAX_SHORT_TEXT_BYTES)
            .into_owned();
    let found = format!("PHP {version}");
    if u8_at(&module, entry.zts) != 0 {
        return Err(AttachError::ThreadSafe { found });
    }
    if u8_at(&module, entry.zend_debug) != 0 {
        return Err(AttachError::DebugBuild { found });
    }
    let Some((table, _)) = offsets::table(api) else {
        return Err(AttachError::Unsupported { found });
    };
    let (major, minor) = table.version;
    // The API number is fixed for a whole minor version; if the two disagree, this is not what we take it for.
    if !version.starts_with(&format!("{major}.{minor}.")) {
        return Err(AttachError::Unsupported { found });
    }
    let name = read_u64(target, sapi_module.offset(ANY.sapi_module.name as u64)).map_err(not_ready)?;
    let sapi =
        text(&c_string(target, RemoteAddr(name), MAX_SHORT_TEXT_BYTES)?, MAX_SHORT_TEXT_BYTES).into_owned();
    if sapi.is_empty() {
        return Err(AttachError::NotReady);
    }
    Ok(Some(Version { major, minor, text: version, sapi, zend_module_api_no: api }))
}

/// The bytes of the engine's own module (`Core`), once it has been started.
fn engine_module<T: Memory + ?Sized>(target: &T, registry: RemoteAddr) -> Result<Option<Vec<u8>>, ReadError> {
    let (table, entry) = (&ANY.hash_table, &ANY.module_entry);
    let mut head = vec![0; table.n_num_used + 4];
    target.read(registry, &mut head)?;
    let used = usize::try_from(u32_at(&head, table.n_num_used)).unwrap_or(0).min(MAX_MODULES);
    for at in 0..used {
        let bucket = addr_at(&head, table.ar_data).offset((at * table.bucket_size + table.bucket_ptr) as u64);
        let mut module = vec![0; entry.size];
        target.read(RemoteAddr(read_u64(target, bucket)?), &mut module)?;
        let name = c_string(target, addr_at(&module, entry.name), MAX_SHORT_TEXT_BYTES)?;
        if name == b"Core" {
            return Ok((u32_at(&module, entry.module_started) != 0).then_some(module));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slip_remote::Image;

    /// A target that has just the module registry.
    fn target(api: u32, debug: u8, zts: u8, version: &str) -> Image {
        let mut image = Image::default();
        let (registry, buckets, module, strings) =
            (RemoteAddr(0x1000), RemoteAddr(0x2000), RemoteAddr(0x3000), RemoteAddr(0x4000));
        for (name, addr) in [
            ("executor_globals", 0x5000),
            ("module_registry", 0x1000),
            ("sapi_module", 0x6000),
            ("sapi_globals", 0x7000),
            ("compiler_globals", 0x8000),
        ] {
            image.insert_symbol(name, RemoteAddr(addr));
        }
        let mut head = vec![0; 56];
        head[16..24].copy_from_slice(&buckets.0.to_le_bytes());
        head[24..28].copy_from_slice(&1_u32.to_le_bytes());
        image.insert(registry, &head);
        image.insert(buckets, &module.0.to_le_bytes());
        let mut entry = vec![0; 168];
        entry[4..8].copy_from_slice(&api.to_le_bytes());
        entry[8] = debug;
        entry[9] = zts;
        entry[32..40].copy_from_slice(&strings.0.to_le_bytes());
        entry[88..96].copy_from_slice(&strings.offset(64).0.to_le_bytes());
        entry[136] = 1;
        image.insert(module, &entry);
        let mut text = vec![0; 256];
        text[..4].copy_from_slice(b"Core");
        text[64..64 + version.len()].copy_from_slice(version.as_bytes());
        text[128..131].copy_from_slice(b"cli");
        image.insert(strings, &text);
        image.insert(RemoteAddr(0x6000), &strings.offset(128).0.to_le_bytes());
        image.insert(RemoteAddr(0x8000 + 56), &1_u64.to_le_bytes());
        image
    }

    #[test]
    fn versions_are_told_apart() {
        let version = detect(&target(20_220_829, 0, 0, "8.2.36")).unwrap().unwrap();
        assert_eq!(version.to_string(), "PHP 8.2.36 (cli)");
        assert_eq!((version.major, version.minor), (8, 2));
        assert_eq!(detect(&Image::default()), Ok(None));
    }

    #[test]
    fn builds_that_we_do_not_read_are_refused_with_the_reason() {
        let refused = |image: &Image| detect(image).unwrap_err().to_string();
        let supported = "supported: PHP 8.2, 8.4 (non-thread-safe release builds)";
        let refusals = [
            (target(20_220_829, 1, 0, "8.2.36"), "PHP 8.2.36 is a debug build"),
            (target(20_220_829, 0, 1, "8.2.36"), "PHP 8.2.36 is a thread-safe (ZTS) build"),
            (target(20_190_902, 0, 0, "7.4.33"), "PHP 7.4.33 is not supported"),
            (target(20_220_829, 0, 0, "9.9.9"), "PHP 9.9.9 is not supported"),
        ];
        for (image, reason) in &refusals {
            assert_eq!(refused(image), format!("{reason}; {supported}"));
        }
        let mut zts = Image::default();
        zts.insert_symbol("executor_globals_offset", RemoteAddr(8));
        assert_eq!(refused(&zts), format!("PHP is a thread-safe (ZTS) build; {supported}"));
    }

    #[test]
    fn an_engine_that_has_not_started_is_not_ready() {
        let mut image = target(20_220_829, 0, 0, "8.2.36");
        image.insert(RemoteAddr(0x8000 + 56), &[0; 8]);
        assert_eq!(detect(&image), Err(AttachError::NotReady));
        let mut image = target(20_220_829, 0, 0, "8.2.36");
        image.insert(RemoteAddr(0x3000 + 136), &[0]);
        assert_eq!(detect(&image), Err(AttachError::NotReady));
    }
}
