//! A php-fpm with one worker, and a client for it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// A php-fpm program, and how it runs.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) version: (u32, u32),
    root: Option<PathBuf>,
    pub(crate) opcache: bool,
}

impl Build {
    pub(crate) fn label(&self) -> String {
        format!("php-fpm{}.{}{}", self.version.0, self.version.1, if self.opcache { " opcache" } else { "" })
    }
}

/// Every php-fpm of this machine, without and with opcache.
pub(crate) fn builds() -> Vec<Build> {
    let mut found = Vec::new();
    let mut add = |version: (u32, u32), root: Option<PathBuf>| {
        let program = format!("usr/sbin/php-fpm{}.{}", version.0, version.1);
        if root.as_deref().unwrap_or(Path::new("/")).join(&program).exists() {
            found.extend([false, true].map(|opcache| Build { version, root: root.clone(), opcache }));
        } else {
            slip_testkit::skip(&program, "it is not installed");
        }
    };
    add((8, 2), None);
    match slip_testkit::root("php") {
        Ok(root) => add((8, 4), Some(root)),
        Err(reason) => slip_testkit::skip("php-fpm8.4", &reason),
    }
    found
}

/// A running master with one worker. Killed when dropped.
pub(crate) struct Fpm {
    master: Child,
    pub(crate) worker: u32,
    socket: PathBuf,
    /// The folder of scripts as seen from here.
    outside: PathBuf,
    /// The folder of scripts as the worker sees it.
    pub(crate) inside: PathBuf,
}

impl Fpm {
    /// Starts it with these scripts, each a name and a text.
    pub(crate) fn start(build: &Build, scripts: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("slip-zend-fpm.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (outside, inside) = match &build.root {
            Some(root) => (root.join("slip").join(&name), Path::new("/slip").join(&name)),
            None => (std::env::temp_dir().join(&name), std::env::temp_dir().join(&name)),
        };
        std::fs::create_dir_all(&outside).unwrap();
        for (file, text) in scripts {
            std::fs::write(outside.join(file), text).unwrap();
        }
        let at = |file: &str| inside.join(file).display().to_string();
        // As root it would refuse a pool without a user.
        let root =
            std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
        let user = if root { "user = root\ngroup = root\n" } else { "" };
        let config = format!(
            "[global]\nerror_log = {}\n[www]\nlisten = {}\npm = static\npm.max_children = 1\n{user}",
            at("log"),
            at("socket"),
        );
        std::fs::write(outside.join("fpm.conf"), config).unwrap();
        let program = format!("/usr/sbin/php-fpm{}.{}", build.version.0, build.version.1);
        let mut command = match &build.root {
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
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut master = command.spawn().unwrap();
        let socket = outside.join("socket");
        let end = Instant::now() + PATIENCE;
        let worker = loop {
            let children = slip_remote::children_of(master.id());
            if let Some(worker) = children.first()
                && UnixStream::connect(&socket).is_ok()
            {
                break *worker;
            }
            if Instant::now() > end || master.try_wait().unwrap().is_some() {
                let log = std::fs::read_to_string(outside.join("log")).unwrap_or_default();
                let _ = master.kill();
                let _ = master.wait();
                panic!("{} does not start: {log}", build.label());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Self { master, worker, socket, outside, inside }
    }

    /// A connection on which requests can be sent.
    pub(crate) fn connect(&self) -> Connection {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection { stream, scripts: self.inside.clone() }
    }

    /// One request on its own connection; its output without headers.
    pub(crate) fn fetch(&self, script: &str, uri: &str) -> String {
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
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.master.wait();
        let _ = std::fs::remove_dir_all(&self.outside);
    }
}

/// A FastCGI connection.
pub(crate) struct Connection {
    stream: UnixStream,
    scripts: PathBuf,
}

impl Connection {
    /// Sends a request up to, not including, its body.
    pub(crate) fn send(&mut self, script: &str, uri: &str, method: &str, keep: bool) {
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
    pub(crate) fn body(&mut self, part: &[u8]) {
        self.stream.write_all(&record(5, part)).unwrap();
    }

    /// Sends the last part of the body.
    pub(crate) fn finish(&mut self, part: &[u8]) {
        if !part.is_empty() {
            self.body(part);
        }
        self.body(b"");
    }

    /// Waits for the end of the request and closes the connection, which the worker waits for; its output without
    /// headers.
    pub(crate) fn receive(mut self) -> String {
        self.receive_and_keep()
    }

    /// Waits for the end of a request that was sent with `keep`.
    pub(crate) fn receive_and_keep(&mut self) -> String {
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
