//! Files that are no recordings, or not whole ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{BUSY, Ran, Recorder, Target, python, run};

/// A recording of half a second.
fn recorded(folder: &Path) -> PathBuf {
    let file = folder.join("whole.slip");
    let target = Target::python(BUSY);
    let ran = Recorder::start(&file, &["--pid", &target.pid(), "--rate", "997", "--duration", "0.5"]).ends();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    file
}

fn report(bytes: &[u8], format: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    fs::write(&file, bytes).unwrap();
    let ran = run(&["report", file.to_str().unwrap(), "--format", format]);
    assert_eq!(fs::read(&file).unwrap(), bytes, "the file was changed");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a file was left beside it");
    ran
}

#[track_caller]
fn is_no_recording(bytes: &[u8], found: &str) {
    let ran = report(bytes, "md");
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    let expected =
        format!(" is not a recording: {found}\nhint: recordings are written by `slip record -o NAME.slip`\n");
    assert!(ran.stderr.ends_with(&expected), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[test]
fn files_of_other_kinds() {
    is_no_recording(b"", "it is empty");
    is_no_recording(b"S", "it is of another format");
    is_no_recording(
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0",
        "it is of another format",
    );
    is_no_recording(b"\x7fELF\x02\x01\x01\0", "it is a program");
    is_no_recording(b"\x1f\x8b\x08\0", "it is a gzip file, perhaps a pprof profile");
    // Bytes without any order, the same in each run.
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..20_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    is_no_recording(&noise, "it is of another format");
}

#[test]
fn another_programs_database() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cookies.sqlite");
    let text = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute('CREATE TABLE samples(id INTEGER PRIMARY KEY, text TEXT)')
base.executemany('INSERT INTO samples(text) VALUES(?)', [('x' * 100,)] * 1000)
base.commit()
";
    assert!(Command::new(python()).args(["-c", text]).arg(&file).status().unwrap().success());
    is_no_recording(&fs::read(&file).unwrap(), "it is the SQLite file of another program");
}

#[test]
fn a_file_that_does_not_exist_whatever_its_name() {
    for name in ["/no/such/folder/a.slip", "no-such-file", "no-such-file.slip"] {
        let ran = run(&["report", name]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let expected =
            " does not exist\nhint: recordings are in the folder where `slip record` was started\n";
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.ends_with(expected), "{}", ran.stderr);
    }
}

#[test]
fn a_recording_of_a_later_version() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(recorded(folder.path())).unwrap();
    // `PRAGMA user_version` lies there in every SQLite file, the last byte of four.
    bytes[63] += 1;
    let ran = report(&bytes, "md");
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let expected = " has format version 6; this slip reads up to 5\n\
                    hint: read it with the slip that wrote it, or with a later version than this one\n";
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.ends_with(expected), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

/// Either the command says what is missing and shows the rest, or that nothing is left.
#[track_caller]
fn is_reported_as_damaged(bytes: &[u8], what: &str) -> bool {
    let readable =
        ["md", "html", "json", "collapsed", "speedscope", "pprof", "firefox", "chrome"].map(|format| {
            let ran = report(bytes, format);
            match ran.code {
                0 => assert!(
                    ran.stderr.starts_with("warning: ") && !ran.stdout.is_empty(),
                    "{what}, {format}: {}",
                    ran.stderr
                ),
                6 => assert!(
                    ran.stderr.starts_with("error: nothing in ") && ran.stdout.is_empty(),
                    "{what}, {format}: {}",
                    ran.stderr
                ),
                code => panic!("{what}, {format}: exit code {code}: {}", ran.stderr),
            }
            ran.code == 0
        });
    assert!(readable.iter().all(|same| *same == readable[0]), "{what}: {readable:?}");
    readable[0]
}

#[test]
fn a_recording_that_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(recorded(folder.path())).unwrap();
    // Beyond the signature, so that it can be told for what it is.
    for length in [16, 17, 99, 100, 101, 512, 4_095, 4_096, 4_097] {
        assert!(!is_reported_as_damaged(&bytes[..length], &format!("{length} bytes")));
    }
    for eighth in 1..8 {
        is_reported_as_damaged(&bytes[..bytes.len() * eighth / 8], &format!("{eighth} of 8 parts"));
    }
}

#[test]
fn a_recording_with_zeroed_pages() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(recorded(folder.path())).unwrap();
    let pages = bytes.len() / 4_096;
    assert_eq!(bytes[36..40], [0; 4], "a page that is in no use would not be missed");
    let mut readable = 0;
    for page in 1..pages {
        let mut holed = bytes.clone();
        holed[page * 4_096..(page + 1) * 4_096].fill(0);
        readable += u32::from(is_reported_as_damaged(&holed, &format!("page {page} of {pages}")));
    }
    assert!(readable > 0, "a hole need not cost everything");
}
