//! The page of a recording: as a file, and served.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::harness::{run, slip};

/// A recording with a budget.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/flask.slip");
const EARLIER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/symfony.slip");

#[test]
fn a_page_is_one_file_and_the_same_each_time() {
    let page = run(&["report", RECORDING, "--format", "html"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
    assert!(page.stdout.starts_with("<!doctype html>") && page.stdout.contains("Where a request goes"));
    assert_eq!(page.stdout, run(&["report", RECORDING, "--format", "html"]).stdout);
    let compared = run(&["report", RECORDING, "--format", "html", "--base", EARLIER]);
    assert_eq!(compared.code, 0, "{}", compared.stderr);
    assert!(compared.stdout.contains("Compared with symfony.slip"));
}

#[test]
fn only_a_page_compares() {
    let ran = run(&["report", RECORDING, "--base", EARLIER]);
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
    insta::assert_snapshot!(ran.stderr, @r"
    error: only a page of HTML compares two recordings
    hint: `--base` goes with `--format html`; `slip diff` compares budgets as text
    ");
    let ran = run(&["report", RECORDING, "--format", "html", "--base", "/none.slip"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("/none.slip"), "{}", ran.stderr);
}

/// What a server answers, to bytes that are sent to it.
fn asked(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // It may have answered, and closed, before it was sent all.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_view_is_for_who_knows_its_address_and_ends_with_ctrl_c() {
    let mut server = Command::new(slip())
        .args(["view", RECORDING])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let rest = address.trim().strip_prefix("http://127.0.0.1:").unwrap();
    let (port, path) = rest.split_once('/').unwrap();
    let (port, path): (u16, _) = (port.parse().unwrap(), format!("/{path}"));
    let get = |path: &str, host: &str| {
        asked(port, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
    };
    let ours = format!("127.0.0.1:{port}");
    let page = get(&path, &ours);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"));
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("no-store") && head.contains("X-Frame-Options: DENY"), "{head}");
    assert_eq!(body, run(&["report", RECORDING, "--format", "html"]).stdout);
    for (path, host, status) in
        [("/", &*ours, "404"), ("/favicon.ico", &*ours, "404"), (&*path, "evil.example", "421")]
    {
        let answer = get(path, host);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.len() < 500, "{answer}");
    }
    // What is no request is no reason to end, nor are ones that never come to their end.
    let endless = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 100_000]].concat();
    assert!(asked(port, &endless).is_empty() || asked(port, &endless).starts_with("HTTP/1.1 400 "));
    assert!(asked(port, b"\xff\xfe\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let silent: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    drop(silent);
    // They are gone when it has seen that.
    crate::harness::wait_for("an answer", || get(&path, &ours).starts_with("HTTP/1.1 200 ").then_some(()));

    // Taken already.
    let ran = run(&["view", RECORDING, "--port", &port.to_string()]);
    assert_eq!((ran.code, &*ran.stdout), (7, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("without `--port`"), "{}", ran.stderr);

    assert!(Command::new("kill").args(["-INT", &server.id().to_string()]).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(130));
}
