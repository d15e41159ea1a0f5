//! `slip view`: the page of a recording, served to this machine alone.
//!
//! Whoever else is logged in here could ask the same port, and so could any page that the browser has open, so the address has a token
//! that nobody can guess, and nothing is answered to a request that names another host: that is how a page elsewhere would reach us
//! under a name of its own (DNS rebinding). The page itself asks for nothing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::iterator::Signals;
use slip_record::file::load;
use slip_report::{Format, Options};

use crate::args::ViewOptions;
use crate::failure::{self, Failure};
use crate::record::{ENDING_SIGNALS, cannot_listen};
use crate::report::compared;

/// The longest head of a request that is read. Browsers send some hundred bytes.
const MAX_REQUEST: usize = 8_192;
/// Connections that are open at the same time; further ones are closed at once. A browser has six.
const MAX_CONNECTIONS: usize = 16;
/// For so long a request may take to come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// For so long a browser may take nothing of the page.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Of every answer: no other page may have it within itself, or keep it.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
    Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n";

/// Serves the page until the user ends it.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn run(options: &ViewOptions) -> Result<(), Failure> {
    let loaded = load(&options.file)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {}", slip_report::clean(warning));
    }
    let page_options =
        Options { include_idle: options.idle, notes: loaded.warnings.clone(), ..Options::default() };
    let page = match &options.base {
        None => slip_report::render(&loaded.recording, Format::Html, &page_options)?,
        Some(base) => compared(&loaded.recording, base, &page_options)?,
    };
    let mut signals = Signals::new(ENDING_SIGNALS).map_err(cannot_listen)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(|error| {
        let failure = Failure::io(format!("cannot listen on port {}", options.port), &error);
        if options.port == 0 { failure } else { failure.hint("without `--port` one is taken that is free") }
    })?;
    let port =
        listener.local_addr().map_err(|error| Failure::io("cannot tell the port".to_owned(), &error))?.port();
    let site = Arc::new(Site { path: format!("/{}/", token()?), port, page });
    crate::print(format!("http://127.0.0.1:{port}{}\n", site.path).as_bytes())?;
    eprintln!("note: open this address in a browser on this machine; Ctrl-C ends it");
    thread::spawn(move || serve(&listener, &site));
    signals.forever().next();
    Err(Failure::silent(failure::INTERRUPTED))
}

/// 128 bits by the kernel, in hexadecimal digits.
fn token() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Failure::io("cannot read /dev/urandom".to_owned(), &error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is served.
struct Site {
    /// `/TOKEN/`.
    path: String,
    port: u16,
    page: Vec<u8>,
}

fn serve(listener: &TcpListener, site: &Arc<Site>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No file number is left, for example: that passes, and must not keep a CPU busy meanwhile.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (site, open) = (site.clone(), open.clone());
        thread::spawn(move || {
            // A browser that has gone away is none of our business.
            let _ = answer(stream, &site);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn answer(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let head = read_head(&mut stream)?;
    let (status, body) = match judge(&head, site) {
        Answer::Page => ("200 OK", &site.page[..]),
        Answer::Refused(status) => (status, status.as_bytes()),
    };
    let kind = if status.starts_with("200") { "text/html" } else { "text/plain" };
    let head_of_answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n{HEADERS}\r\n",
        body.len()
    );
    stream.write_all(head_of_answer.as_bytes())?;
    if !head.starts_with("HEAD ") {
        stream.write_all(body)?;
    }
    stream.flush()
}

/// The request's head, as far as it came; longer ones end where the limit is.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let until = Instant::now() + REQUEST_TIMEOUT;
    let mut head = Vec::new();
    let mut buffer = [0_u8; 1_024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_REQUEST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(&buffer[..count]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// What a request gets.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Page,
    Refused(&'static str),
}

fn judge(head: &str, site: &Site) -> Answer {
    let Some((head, _)) = head.split_once("\r\n\r\n") else { return Answer::Refused("400 Bad Request") };
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) || words.next().is_some() {
        return Answer::Refused("400 Bad Request");
    }
    if !matches!(method, Some("GET" | "HEAD")) {
        return Answer::Refused("405 Method Not Allowed");
    }
    let mut hosts = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let is_ours = |host: &str| {
        ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{}", site.port))
            || (site.port == 80 && ["127.0.0.1", "localhost"].contains(&host))
    };
    if !hosts.next().is_some_and(is_ours) || hosts.next().is_some() {
        return Answer::Refused("421 Misdirected Request");
    }
    if path == Some(&site.path) { Answer::Page } else { Answer::Refused("404 Not Found") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(head: &str) -> Answer {
        judge(head, &Site { path: "/0123/".into(), port: 4_000, page: Vec::new() })
    }

    #[test]
    fn only_the_right_address_under_our_own_name_has_the_page() {
        let page = "GET /0123/ HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nAccept: */*\r\n\r\n";
        assert_eq!(asked(page), Answer::Page);
        assert_eq!(asked("HEAD /0123/ HTTP/1.0\r\nhost:  localhost:4000\r\n\r\n"), Answer::Page);
        let refused = [
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n", "404 Not Found"),
            ("GET /0123 HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n", "404 Not Found"),
            ("GET /0123/x HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n", "404 Not Found"),
            ("GET /0123/ HTTP/1.1\r\nHost: evil.example:4000\r\n\r\n", "421 Misdirected Request"),
            ("GET /0123/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "421 Misdirected Request"),
            ("GET /0123/ HTTP/1.1\r\n\r\n", "421 Misdirected Request"),
            (
                "GET /0123/ HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nHost: evil.example\r\n\r\n",
                "421 Misdirected Request",
            ),
            ("POST /0123/ HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n", "405 Method Not Allowed"),
            ("GET /0123/\r\n\r\n", "400 Bad Request"),
            ("GET /0123/ HTTP/1.1 x\r\nHost: 127.0.0.1:4000\r\n\r\n", "400 Bad Request"),
            ("GET /0123/ HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n", "400 Bad Request"),
            ("", "400 Bad Request"),
        ];
        for (head, status) in refused {
            assert_eq!(asked(head), Answer::Refused(status), "{head}");
        }
    }

    #[test]
    fn no_two_tokens_are_the_same() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one.len() == 32 && one != other);
    }
}
