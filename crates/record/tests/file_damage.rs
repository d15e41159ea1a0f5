//! Files that are cut, flipped, foreign, newer or made to hurt: as much as can be read, never a panic.
#![allow(clippy::unwrap_used, reason = "test code")]

mod file_support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use file_support::{
    FLUSH_SAMPLES, INTERVAL_NS, Source, budget, check_samples, child_of, child_path, info, sample, served,
    wait,
};
use rusqlite::Connection;
use slip_model::{Batch, Budget, Recording, Request, SampleBlock};
use slip_record::file::{FileError, Writer, block, load};
use tempfile::TempDir;

const FLUSHES: u64 = 1_250;

/// A recording of packed blocks and, as it is not closed, some small ones.
fn recorded(flushes: u64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    for _ in 0..flushes {
        writer.append(&source.batch(FLUSH_SAMPLES)).unwrap();
    }
    drop(writer);
    (folder, path)
}

/// Asserts that every sample is one of the made-up recording, in order, and returns how many there are.
fn check_some_samples(recording: &Recording) -> u64 {
    let mut count = 0;
    let mut last = None;
    for found in recording.samples() {
        let number = found.time_ns / INTERVAL_NS * 8 + u64::from(found.thread.0);
        assert!(last < Some(number), "sample {number} after {last:?}");
        last = Some(number);
        let mut expected = sample(number);
        if found.stack != expected.stack {
            let leaf = recording.interner.frames_of(found.stack).next().unwrap();
            assert_eq!(recording.interner.text(recording.interner.frame_at(leaf).name), "[unreadable]");
            expected.stack = found.stack;
        }
        assert_eq!(found, expected);
        count += 1;
    }
    count
}

#[test]
fn a_cut_file_gives_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    for _ in 0..FLUSHES {
        writer.append(&source.batch(FLUSH_SAMPLES)).unwrap();
    }
    writer.finish(source.totals()).unwrap();
    drop(writer);
    let whole = fs::read(&path).unwrap();
    let all = FLUSHES * FLUSH_SAMPLES;
    assert_eq!(check_samples(&load(&path).unwrap().recording), all);
    let cut = folder.path().join("cut.slip");
    let mut last_share = 0.0;
    for step in 0..=100 {
        // Odd lengths, and all of the first pages.
        let length = if step < 40 { step * 1_024 + step % 3 } else { whole.len() * step / 100 };
        fs::write(&cut, &whole[..length]).unwrap();
        match load(&cut) {
            Ok(loaded) => {
                let count = check_some_samples(&loaded.recording);
                let text = loaded.warnings.join("; ");
                assert_eq!(length == whole.len(), !text.contains("cut short"), "{length}: {text}");
                assert_eq!(count < all, text.contains("samples ("), "{length}: {text}");
                last_share = count as f64 / all as f64;
                if step >= 40 && step % 10 == 0 {
                    println!(
                        "{:3} % of the bytes: {:5.1} % of the samples; {text}",
                        step,
                        last_share * 100.0
                    );
                }
                // A packed block, a tenth of this file, is whole or lost.
                let had = length as f64 / whole.len() as f64;
                assert!(last_share > had - 0.3, "{length}: {last_share} of the samples in {had} of the file");
            }
            Err(FileError::Damaged { .. } | FileError::NotASlipFile { .. }) => {
                assert!(length < whole.len() / 4, "{length}: nothing could be read");
            }
            Err(error) => panic!("{length}: {error}"),
        }
    }
    assert!(last_share > 0.999);
}

#[test]
fn flipped_bits_cost_no_more_than_their_block() {
    let (folder, path) = recorded(250);
    let whole = fs::read(&path).unwrap();
    let all = 250 * FLUSH_SAMPLES;
    let flipped = folder.path().join("flipped.slip");
    let (mut errors, mut worst, mut random) = (0, all, 1_u64);
    for round in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 4 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of the rounds aim at the first pages, where the structure is.
            let limit = if round % 2 == 0 { 40_960 } else { bytes.len() as u64 };
            let at = (random >> 16) % limit;
            bytes[at as usize] ^= 1 << (random & 7);
        }
        fs::write(&flipped, &bytes).unwrap();
        match load(&flipped) {
            // Names and numbers in rows have no checksum, so only what is not a sample is held against them.
            Ok(loaded) => worst = worst.min(loaded.recording.samples().count() as u64),
            Err(FileError::Damaged { .. } | FileError::NotASlipFile { .. } | FileError::Newer { .. }) => {
                errors += 1
            }
            Err(error) => panic!("{round}: {error}"),
        }
    }
    println!("{errors} of 200 unreadable; the worst of the others kept {worst} of {all} samples");
    assert!(errors < 30);
}

#[test]
fn one_broken_block_is_left_out_and_counted() {
    let (_folder, path) = recorded(400);
    let connection = Connection::open(&path).unwrap();
    connection.execute("UPDATE blocks SET data = zeroblob(length(data)) WHERE id = 121", ()).unwrap();
    connection.execute("UPDATE strings SET text = x'00' WHERE id = 9", ()).unwrap();
    drop(connection);
    let loaded = load(&path).unwrap();
    assert_eq!(check_some_samples(&loaded.recording), 280 * FLUSH_SAMPLES);
    let expected = [
        "the recorder ended without closing the file, 200.0 s after its begin",
        "110880 of 158400 samples (70.0 %) could be read",
        "1 blocks with 47520 samples are damaged and left out",
        "1 names or stacks are lost and shown as [unreadable]",
    ];
    assert_eq!(loaded.warnings, expected);
}

/// A recording of waits in three blocks, and perhaps of samples.
fn recorded_waits(with_samples: bool) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    let introduction = Source::default().batch(FLUSH_SAMPLES);
    for flush in 0..3 {
        let mut batch = if flush == 0 { introduction.clone() } else { Batch::default() };
        batch.totals = introduction.totals;
        if !with_samples {
            (batch.samples, batch.totals) = Default::default();
        }
        batch.waits = (flush * 1_000..flush * 1_000 + 1_000).map(wait).collect();
        writer.append(&batch).unwrap();
    }
    (folder, path)
}

/// Waits that can be read, and what is said about the others, after these changes.
fn waits_after(with_samples: bool, script: &str) -> (usize, Vec<String>) {
    let (_folder, path) = recorded_waits(with_samples);
    Connection::open(&path).unwrap().execute_batch(script).unwrap();
    let loaded = load(&path).unwrap();
    let samples = if with_samples { FLUSH_SAMPLES } else { 0 };
    assert_eq!(loaded.recording.samples().count() as u64, samples, "{script}");
    (loaded.recording.waits.len(), loaded.warnings[1..].to_vec())
}

#[test]
fn broken_waits_are_left_out_and_counted() {
    for with_samples in [true, false] {
        assert_eq!(waits_after(with_samples, ""), (3_000, vec![]));
        let broken = "UPDATE waits SET data = zeroblob(length(data)) WHERE id = 2";
        let expected = "1 blocks with 1000 waits are damaged and left out";
        assert_eq!(waits_after(with_samples, broken), (2_000, vec![expected.to_owned()]));
        let huge = "INSERT INTO waits VALUES(9000, 0, 0, 1000000000, zeroblob(1000000))";
        let expected = "1 blocks with 1000000000 waits are damaged and left out";
        assert_eq!(waits_after(with_samples, huge), (3_000, vec![expected.to_owned()]));
    }
    let nameless = "DELETE FROM threads WHERE id = 7";
    let (waits, warnings) = waits_after(false, nameless);
    assert_eq!((waits, &*warnings), (2_625, &["375 waits of unknown threads are left out".to_owned()][..]));

    let (_folder, path) = recorded_waits(false);
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("DELETE FROM stacks WHERE id > 480").unwrap();
    let recording = load(&path).unwrap().recording;
    for (number, found) in (0..).zip(&recording.waits) {
        if wait(number).stack.0 > 480 {
            let leaf = recording.interner.frames_of(found.stack).next().unwrap();
            assert_eq!(recording.interner.text(recording.interner.frame_at(leaf).name), "[unreadable]");
        } else {
            assert_eq!(*found, wait(number));
        }
    }
    connection.execute_batch("UPDATE waits SET data = x'00'").unwrap();
    let error = load(&path).unwrap_err();
    assert!(matches!(&error, FileError::Damaged { what, .. } if what == "its waits are lost"), "{error}");
}

#[test]
fn files_of_before_there_were_waits_are_whole() {
    assert_eq!(waits_after(true, "DROP TABLE waits"), (0, vec![]));
    let endless = "DROP TABLE waits;
                   CREATE VIEW waits(id, waits, data) AS
                   WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, 0, x'00' FROM n;";
    assert_eq!(waits_after(true, endless), (0, vec![]));
}

/// A recording of a budget with requests in three blocks, and perhaps of samples.
fn recorded_budget(with_samples: bool) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    for flush in 0..3 {
        let mut batch = if with_samples { source.batch(FLUSH_SAMPLES) } else { Batch::default() };
        batch.budget = Some(budget(1_000 * (flush + 1)));
        batch.served = (flush * 1_000..flush * 1_000 + 1_000).map(served).collect();
        writer.append(&batch).unwrap();
    }
    (folder, path)
}

#[test]
fn a_broken_budget_is_said_to_be_lost_and_broken_requests_are_counted() {
    let after = |with_samples: bool, script: &str| {
        let (_folder, path) = recorded_budget(with_samples);
        Connection::open(&path).unwrap().execute_batch(script).unwrap();
        let loaded = load(&path)?;
        let requests = loaded.recording.budget.as_ref().map(|budget| budget.requests.len());
        let samples = if with_samples { 3 * FLUSH_SAMPLES } else { 0 };
        assert_eq!(loaded.recording.samples().count() as u64, samples, "{script}");
        let whole = Budget { requests: Vec::new(), ..loaded.recording.budget.unwrap_or(budget(3_000)) };
        assert_eq!(whole.endpoints, budget(3_000).endpoints);
        Ok::<_, FileError>((requests, loaded.warnings[1..].to_vec()))
    };
    for with_samples in [true, false] {
        assert_eq!(after(with_samples, "").unwrap(), (Some(3_000), vec![]));
        let broken = "UPDATE served SET data = zeroblob(length(data)) WHERE id = 2";
        let warning = "1 blocks with 1000 requests of the budget are damaged and left out".to_owned();
        assert_eq!(after(with_samples, broken).unwrap(), (Some(2_000), vec![warning]));
        let fewer = "UPDATE budget SET json = replace(json, '\"workers\":[', '\"workers\":[],\"other\":[')";
        let warning = "3000 requests of the budget of unknown workers are left out".to_owned();
        assert_eq!(after(with_samples, fewer).unwrap(), (Some(0), vec![warning]));
        for lost in [
            "UPDATE budget SET json = substr(json, 2)",
            "UPDATE budget SET json = x'00'",
            "UPDATE budget SET json = replace(json, '\"pid\":100,', '\"pid\":-1,')",
            "DELETE FROM budget",
        ] {
            match after(with_samples, lost) {
                Ok((requests, warnings)) if with_samples => {
                    let warning = "the budget of the workers' time is lost".to_owned();
                    assert_eq!((requests, warnings), (None, vec![warning]), "{lost}");
                }
                Err(FileError::Damaged { what, .. }) if !with_samples => {
                    assert_eq!(what, "its budget is lost", "{lost}");
                }
                other => panic!("{lost}: {other:?}"),
            }
        }
    }
    assert_eq!(after(true, "DROP TABLE served").unwrap(), (Some(0), vec![]));
}

#[test]
fn files_of_before_there_were_budgets_are_whole() {
    let (_folder, path) = recorded(3);
    Connection::open(&path).unwrap().execute_batch("DROP TABLE budget; DROP TABLE served").unwrap();
    let loaded = load(&path).unwrap();
    assert_eq!((loaded.recording.budget, loaded.warnings.len()), (None, 1), "{:?}", loaded.warnings);
}

#[test]
fn other_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let found = |name: &str| match load(&at(name)) {
        Err(FileError::NotASlipFile { found, .. }) => found,
        other => panic!("{name}: {other:?}"),
    };
    fs::write(at("text"), "hello").unwrap();
    assert_eq!(found("text"), "it is of another format");
    fs::write(at("empty"), "").unwrap();
    assert_eq!(found("empty"), "it is empty");
    fs::write(at("profile"), [0x1f, 0x8b, 8, 0]).unwrap();
    assert_eq!(found("profile"), "it is a gzip file, perhaps a pprof profile");
    let other = Connection::open(at("other")).unwrap();
    other.execute_batch("CREATE TABLE blocks(x)").unwrap();
    assert_eq!(found("other"), "it is the SQLite file of another program");
    fs::create_dir(at("folder")).unwrap();
    assert_eq!(found("folder"), "it is a folder");
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    assert_eq!(found("fifo"), "it is not a regular file");
    assert!(matches!(load(&at("missing.slip")), Err(FileError::NotFound { .. })));

    let (_folder, path) = recorded(2);
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
    let error = load(&path).unwrap_err();
    assert!(matches!(error, FileError::Newer { version: 7, supported: 5, .. }), "{error}");
    assert!(error.hint().unwrap().contains("later version"));
}

#[test]
fn ids_that_point_nowhere_are_mended_or_left_out() {
    let (_folder, path) = recorded(4);
    let connection = Connection::open(&path).unwrap();
    let script = "DELETE FROM stacks WHERE id > 480; DELETE FROM threads WHERE id = 7; DELETE FROM processes WHERE id = 2;
                  UPDATE stacks SET parent = 4000000000 WHERE id = 5; UPDATE stacks SET parent = id WHERE id = 6;
                  UPDATE stacks SET frame = 70000 WHERE id = 7; UPDATE frames SET name = 70000 WHERE id = 8;
                  UPDATE frames SET kind = 99 WHERE id = 9; UPDATE frames SET line = -1 WHERE id = 10;
                  UPDATE threads SET process = 70000, name = 70000 WHERE id = 1;
                  INSERT INTO strings VALUES(4000000000, 'far'); INSERT INTO stacks VALUES(4000000000, 0, 0);
                  INSERT INTO processes(id, pid, ns_pid, language, version, title, first_ns, ended_ns)
                  VALUES(4000000000, 1, 1, 'php', '', '', 0, 0); INSERT INTO stacks VALUES(-5, 0, 0);
                  INSERT INTO blocks VALUES(9000, 0, 0, 1000000000, 0, zeroblob(1000000));";
    connection.execute_batch(script).unwrap();
    drop(connection);
    let recording = load(&path).unwrap().recording;
    assert_eq!(recording.samples().count() as u64, 4 * FLUSH_SAMPLES * 7 / 8);
    assert_eq!(recording.processes[2].title, "[unreadable]");
    for sample in recording.samples() {
        assert!((recording.threads[sample.thread.0 as usize].process.0 as usize) < recording.processes.len());
        assert!(recording.interner.frames_of(sample.stack).count() <= 500);
    }
}

#[test]
fn views_and_triggers_are_not_run() {
    let (_folder, path) = recorded(4);
    let connection = Connection::open(&path).unwrap();
    let script = "DROP TABLE stacks;
                  CREATE VIEW stacks(id, parent, frame) AS
                  WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, 0, 0 FROM n;
                  DROP TABLE frames; CREATE TABLE frames(id INTEGER PRIMARY KEY, kind, name, file, first_line, line,
                  more AS (zeroblob(1000000000)));";
    connection.execute_batch(script).unwrap();
    drop(connection);
    let loaded = load(&path).unwrap();
    assert_eq!(loaded.recording.samples().count() as u64, 4 * FLUSH_SAMPLES);
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
}

#[test]
fn a_decompression_bomb_is_refused_by_its_size() {
    let mut samples = SampleBlock::default();
    for _ in 0..500_000 {
        samples.push(sample(0));
    }
    let requests = vec![Request::default(); 1_000];
    let mut compressor = zstd::bulk::Compressor::new(3).unwrap();
    let bytes = block::encode(&samples, &requests, Some(&mut compressor));
    assert!(bytes.len() * block::MAX_SAMPLES_PER_BYTE >= samples.len(), "padded");
    assert_eq!(block::decode(&bytes).unwrap(), (samples, requests));
    assert_eq!(block::decode_body(&bytes[4..bytes.len() / 2]), Err(block::BlockError::TooMany));
    // Plane that unpacks to more than it should: width 1, base 0, zstd of a megabyte, but one sample only.
    let bomb = compressor.compress(&vec![7; 1 << 20]).unwrap();
    let mut body = [1_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    body.extend_from_slice(&[0; 16]);
    body.push(1);
    body.extend_from_slice(&0_u64.to_le_bytes());
    body.push(1);
    body.extend_from_slice(&(bomb.len() as u32).to_le_bytes());
    body.extend_from_slice(&bomb);
    assert_eq!(block::decode_body(&body), Err(block::BlockError::Malformed));
}

/// A recording in the middle of a transaction, part of which is in the file already.
fn with_hot_journal(folder: &Path) -> PathBuf {
    let (_other, path) = recorded(130);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA synchronous = OFF; PRAGMA cache_size = 1; BEGIN IMMEDIATE; DELETE FROM blocks; \
                              UPDATE strings SET text = 'gone'; UPDATE frames SET name = 0",
        )
        .unwrap();
    let copy = folder.join("hot.slip");
    fs::copy(&path, &copy).unwrap();
    fs::copy(path.with_extension("slip-journal"), folder.join("hot.slip-journal")).unwrap();
    assert_ne!(fs::read(&path).unwrap().len(), 0);
    copy
}

#[test]
fn a_transaction_that_was_cut_off_is_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_hot_journal(folder.path());
    let loaded = load(&path).unwrap();
    assert_eq!(check_samples(&loaded.recording), 130 * FLUSH_SAMPLES);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "one file again");
}

#[test]
fn a_folder_that_may_only_be_read_is_enough() {
    // SAFETY: takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        slip_testkit::skip("a reader that is somebody else", "needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    with_hot_journal(folder.path());
    let (_other, path) = recorded(3);
    fs::copy(path, folder.path().join("cold.slip")).unwrap();
    fs::write(folder.path().join("secret.slip"), "x").unwrap();
    for (name, mode) in
        [("hot.slip", 0o444), ("hot.slip-journal", 0o444), ("cold.slip", 0o444), ("secret.slip", 0)]
    {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The build folder may not be open to others. Copied by a process of its own: a program that we wrote ourselves would
    // be busy while another test is just starting a child.
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = open.path().join("test");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    let mut nobody = child_of(&program, "child_reads_as_nobody", folder.path());
    assert!(nobody.uid(65_534).gid(65_534).status().unwrap().success());
    assert!(folder.path().join("hot.slip-journal").exists(), "nothing has been written");
}

#[test]
fn child_reads_as_nobody() {
    let Some(folder) = child_path() else { return };
    let count = |name: &str| check_samples(&load(&folder.join(name)).unwrap().recording);
    assert_eq!(count("cold.slip"), 3 * FLUSH_SAMPLES);
    assert_eq!(count("hot.slip"), 130 * FLUSH_SAMPLES);
    let error = load(&folder.join("secret.slip")).unwrap_err();
    assert!(matches!(error, FileError::Denied { action: "read", .. }), "{error}");
    let error = Writer::create(&folder.join("new.slip"), &info(), false).unwrap_err();
    assert!(matches!(error, FileError::Denied { action: "create", .. }), "{error}");
}
