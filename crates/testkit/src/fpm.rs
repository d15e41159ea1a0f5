//! A php-fpm with one pool, and a client for it.
//!
//! What cannot go on panics, with the log of php-fpm where that helps: there is nothing that a test could do about it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::interpreters::root;
use crate::launch::Home;
use crate::{PATIENCE, skip};

/// A php-fpm program, and how it runs.
#[derive(Clone, Debug)]
pub struct Build {
    /// Major and minor version of PHP.
    pub version: (u32, u32),
    root: Option<PathBuf>,
    /// Scripts are kept in opcache.
    pub opcache: bool,
}

impl Build {
    /// Whether its files are in a root of their own.
    pub fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// The PHP extension for it, built if need be; what keeps it from that is reported by [`skip`].
    pub fn extension(&self) -> Option<PathBuf> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let version = format!("{}.{}", self.version.0, self.version.1);
        let built = Command::new(sources.join("ext/compile")).arg(&version).output().unwrap();
        if !built.status.success() {
            skip(&format!("the extension for PHP {version}"), &String::from_utf8_lossy(&built.stderr));
            return None;
        }
        Some(PathBuf::from(String::from_utf8(built.stdout).unwrap().trim()))
    }

    /// Name for messages: `php-fpm8.4 opcache`.
    pub fn label(&self) -> String {
        format!("php-fpm{}.{}{}", self.version.0, self.version.1, if self.opcache { " opcache" } else { "" })
    }
}

/// Every php-fpm of this machine, without and with opcache; what is missing is reported by [`skip`].
pub fn builds() -> Vec<Build> {
    let mut found = Vec::new();
    let mut add = |version: (u32, u32), root: Option<PathBuf>| {
        let program = format!("usr/sbin/php-fpm{}.{}", version.0, version.1);
        if root.as_deref().unwrap_or(Path::new("/")).join(&program).exists() {
            found.extend([false, true].map(|opcache| Build { version, root: root.clone(), opcache }));
        } else {
            skip(&program, "it is not installed");
        }
    };
    add((8, 2), None);
    match root("php") {
        Ok(root) => add((8, 4), Some(root)),
        Err(reason) => skip("php-fpm8.4", &reason),
    }
    found
}

/// What a pool is like.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// Number of workers that start at once; 0 goes with `pm = ondemand`.
    pub workers: u32,
    /// More lines for the pool: `pm.max_requests = 2`. They override those that are written anyway.
    pub settings: &'a str,
    /// More lines for the section `[global]`.
    pub global: &'a str,
    /// An extension that the master loads.
    pub extension: Option<&'a Path>,
    /// More settings of PHP, from its start on: `opcache.jit=tracing`.
    pub ini: &'a [&'a str],
}

impl Default for Pool<'_> {
    fn default() -> Self {
        Self { workers: 1, settings: "", global: "", extension: None, ini: &[] }
    }
}

/// A running master and its workers. Killed when dropped.
#[derive(Debug)]
pub struct Fpm {
    master: process::Child,
    /// Name of the pool; no other has it.
    pub pool: String,
    socket: PathBuf,
    /// The folder of scripts as seen from here.
    pub outside: PathBuf,
    /// The folder of scripts as the workers see it.
    pub inside: PathBuf,
    _home: Home,
}

impl Fpm {
    /// Starts one worker with these scripts, each a name and a text.
    pub fn start(build: &Build, scripts: &[(&str, &str)]) -> Self {
        Self::start_pool(build, Pool::default(), scripts)
    }

    /// Starts a pool with these scripts, and waits until it listens and has all workers of `pool`.
    pub fn start_pool(build: &Build, pool: Pool<'_>, scripts: &[(&str, &str)]) -> Self {
        let home = Home::make(build.root.as_deref()).unwrap();
        let (outside, inside) = (home.outside.clone(), home.inside.clone());
        let name = outside.file_name().unwrap().to_string_lossy().into_owned();
        for (file, text) in scripts {
            fs::write(outside.join(file), text).unwrap();
        }
        let at = |file: &str| inside.join(file).display().to_string();
        // As root it would refuse a pool without a user.
        let root =
            fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
        let user = if root { "user = root\ngroup = root\n" } else { "" };
        let Pool { workers, settings, global, extension, ini } = pool;
        let config = format!(
            "[global]\nerror_log = {}\n{global}\n[{name}]\nlisten = {}\npm = static\npm.max_children = {}\n\
             {user}{settings}\n",
            at("log"),
            at("socket"),
            workers.max(1),
        );
        fs::write(outside.join("fpm.conf"), config).unwrap();
        let program = format!("/usr/sbin/php-fpm{}.{}", build.version.0, build.version.1);
        let mut command = match &build.root {
            // Ours looks at its process's memory in /proc. Each of these becomes the next one, so the id stays the master's.
            Some(root) if extension.is_some() => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "private", "sh", "-ec"]);
                command
                    .arg("mount -t proc proc \"$0/proc\"; exec chroot \"$0\" \"$@\"")
                    .arg(root)
                    .arg(program);
                command
            }
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(["-n", "-F", "-y", &at("fpm.conf")]);
        if root {
            command.arg("-R");
        }
        if build.opcache {
            command.args(["-d", "zend_extension=opcache", "-d", "opcache.file_update_protection=0"]);
        }
        for setting in ini {
            command.args(["-d", setting]);
        }
        if let Some(extension) = extension {
            fs::copy(extension, outside.join("extension.so")).unwrap();
            command.args(["-d", &format!("extension={}", at("extension.so"))]);
        }
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let master = command.spawn().unwrap();
        let socket = outside.join("socket");
        let mut fpm = Self { master, pool: name, socket, outside, inside, _home: home };
        let end = Instant::now() + PATIENCE;
        // A connection would start a worker where there is none yet.
        while fpm.workers().len() < workers as usize || !fpm.log().contains("ready to handle connections") {
            assert!(
                Instant::now() < end && fpm.master.try_wait().unwrap().is_none(),
                "{} does not start: {}",
                build.label(),
                fpm.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
        fpm
    }

    /// Process id of the master.
    pub fn master(&self) -> u32 {
        self.master.id()
    }

    /// Process ids of the workers that run now.
    pub fn workers(&self) -> Vec<u32> {
        let master = self.master();
        let text = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// What php-fpm has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.outside.join("log")).unwrap_or_default()
    }

    /// Sends the master a signal by name: `USR2` reloads, `QUIT` ends it when its workers have nothing to do.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.master().to_string()]).status().unwrap();
        assert!(status.success(), "SIG{name} cannot be sent");
    }

    /// A connection on which requests can be sent.
    pub fn connect(&self) -> Connection {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection { stream, scripts: self.inside.clone() }
    }

    /// One request on its own connection; its output without headers.
    pub fn fetch(&self, script: &str, uri: &str) -> String {
        let mut connection = self.connect();
        connection.send(script, uri, "GET", false);
        connection.finish(b"");
        connection.receive()
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // The master takes its workers with it.
        let group = format!("-{}", self.master.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.master.wait();
    }
}

/// A FastCGI connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    scripts: PathBuf,
}

impl Connection {
    /// Sends a request up to, not including, its body.
    pub fn send(&mut self, script: &str, uri: &str, method: &str, keep: bool) {
        let file = self.scripts.join(script).display().to_string();
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        let length = if method == "POST" { "10" } else { "" };
        let mut params = Vec::new();
        for (name, value) in [
            ("SCRIPT_FILENAME", file.as_str()),
            ("SCRIPT_NAME", "/index.php"),
            ("REQUEST_METHOD", method),
            ("QUERY_STRING", query),
            ("REQUEST_URI", uri),
            ("CONTENT_LENGTH", length),
            ("CONTENT_TYPE", if method == "POST" { "application/x-www-form-urlencoded" } else { "" }),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
        ] {
            for len in [name.len(), value.len()] {
                params.extend((u32::try_from(len).unwrap() | 1 << 31).to_be_bytes());
            }
            params.extend(name.bytes().chain(value.bytes()));
        }
        let begin = [0, 1, u8::from(keep), 0, 0, 0, 0, 0];
        let bytes = [record(1, &begin), record(4, &params), record(4, b"")].concat();
        self.stream.write_all(&bytes).unwrap();
    }

    /// Sends a part of the body.
    pub fn body(&mut self, part: &[u8]) {
        self.stream.write_all(&record(5, part)).unwrap();
    }

    /// Sends the last part of the body.
    pub fn finish(&mut self, part: &[u8]) {
        if !part.is_empty() {
            self.body(part);
        }
        self.body(b"");
    }

    /// Waits for the end of the request and closes the connection, which the worker waits for; its output without
    /// headers.
    pub fn receive(mut self) -> String {
        self.receive_and_keep()
    }

    /// Waits for the end of a request that was sent with `keep`.
    pub fn receive_and_keep(&mut self) -> String {
        let mut output = Vec::new();
        loop {
            let mut head = [0; 8];
            self.stream.read_exact(&mut head).unwrap();
            let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let mut content = vec![0; len + usize::from(head[6])];
            self.stream.read_exact(&mut content).unwrap();
            match head[1] {
                6 => output.extend_from_slice(&content[..len]),
                3 => break,
                _ => {}
            }
        }
        let text = String::from_utf8(output).unwrap();
        text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned())
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}
