//! A recorder that is killed, or whose disk is full, leaves all that it had stored.
#![allow(clippy::unwrap_used, reason = "test code")]

mod file_support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use file_support::{FLUSH_SAMPLES, Source, check_samples, child, child_path, info};
use slip_record::file::{FileError, Writer, load};

/// Kills a recorder that flushes as fast as it can (so that it is packing blocks much of the time) at moments that
/// differ, and checks that what it had been told is stored is there. `SLIP_KILL_ROUNDS` sets how often.
#[test]
fn what_was_stored_survives_kill_9() {
    let rounds = std::env::var("SLIP_KILL_ROUNDS").map_or(10, |text| text.parse().unwrap());
    let (mut hot_journals, mut empty_journals) = (0, 0);
    for round in 0..rounds {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.slip");
        let mut recorder = child("child_records_for_ever", &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = recorder.stdout.take().unwrap();
        // Waits for the first flush, then for up to 0.2 s, different from round to round.
        wait_for(&mut output, b'+');
        std::thread::sleep(Duration::from_micros(97 + round * 7_919 * 26 % 200_000));
        recorder.kill().unwrap();
        assert_eq!(recorder.wait().unwrap().signal(), Some(9));
        let mut told = Vec::new();
        output.read_to_end(&mut told).unwrap();
        let stored = 1 + told.iter().filter(|byte| **byte == b'+').count() as u64;

        let journal = folder.path().join("a.slip-journal");
        hot_journals += u32::from(journal.exists());
        let loaded = load(&path).unwrap();
        let samples = check_samples(&loaded.recording);
        // One flush may have been stored but not yet been told of.
        assert!(
            samples == stored * FLUSH_SAMPLES || samples == (stored + 1) * FLUSH_SAMPLES,
            "round {round}: {samples} samples, told of {stored} flushes"
        );
        assert!(!loaded.being_written && !loaded.recording.totals.complete);
        assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
        // A journal that was only just begun has nothing to roll back, and is left for the next writer to remove.
        let left = fs::read(&journal).unwrap_or_default();
        assert!(left.iter().take(8).all(|byte| *byte == 0), "round {round}: {} bytes of journal", left.len());
        empty_journals += u32::from(journal.exists());
    }
    println!(
        "{rounds} rounds, {hot_journals} of them within a transaction, {empty_journals} at its very begin"
    );
}

#[test]
fn child_records_for_ever() {
    let Some(path) = child_path() else { return };
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    loop {
        writer.append(&source.batch(FLUSH_SAMPLES)).unwrap();
        std::io::stdout().write_all(b"+").unwrap();
        std::io::stdout().flush().unwrap();
    }
}

/// The harness of the child prints before the test does.
fn wait_for(output: &mut impl std::io::Read, wanted: u8) {
    let mut byte = [0];
    while byte[0] != wanted {
        output.read_exact(&mut byte).unwrap();
    }
}

#[test]
fn a_limit_of_the_file_size_counts_as_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slip");
    let status =
        child("child_records_until_the_disk_is_full", &path).env("SLIP_LIMIT", "300000").status().unwrap();
    assert!(status.success());
    assert_eq!(load(&path).unwrap().recording.totals.samples % FLUSH_SAMPLES, 0);
}

#[test]
fn a_full_disk_keeps_what_was_stored_and_takes_the_rest_later() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=600k", "tmpfs"])
        .arg(folder.path())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        slip_testkit::skip("a small disk", "needs root to mount one");
        return;
    }
    let result = std::panic::catch_unwind(|| fill(folder.path()));
    let unmounted = Command::new("umount").arg(folder.path()).status().unwrap();
    assert!(unmounted.success());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn fill(disk: &Path) {
    let path = disk.join("a.slip");
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![1; 250_000]).unwrap();
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    let (failed, stored) = append_until_full(&mut writer, &mut source);
    // Again and again changes nothing.
    for _ in 0..5 {
        assert!(matches!(writer.append(&failed), Err(FileError::DiskFull { .. })));
    }
    assert_eq!(check_samples(&load(&path).unwrap().recording), stored);
    // With space again, the same batch goes in, and recording goes on.
    fs::remove_file(&ballast).unwrap();
    writer.append(&failed).unwrap();
    writer.append(&source.batch(FLUSH_SAMPLES)).unwrap();
    writer.finish(source.totals()).unwrap();
    let loaded = load(&path).unwrap();
    assert_eq!(check_samples(&loaded.recording), source.samples);
    assert!(loaded.recording.totals.complete && loaded.warnings.is_empty());

    // A disk without room for even an empty recording.
    fs::write(&ballast, vec![1; 600_000]).unwrap_err();
    let error = Writer::create(&disk.join("b.slip"), &info(), false).unwrap_err();
    assert!(matches!(error, FileError::DiskFull { saved_samples: 0, .. }), "{error}");
    assert!(!disk.join("b.slip").exists());
}

fn append_until_full(writer: &mut Writer, source: &mut Source) -> (slip_model::Batch, u64) {
    for _ in 0..10_000 {
        let stored = source.samples;
        let batch = source.batch(FLUSH_SAMPLES);
        match writer.append(&batch) {
            Ok(()) => {}
            Err(error) => {
                let FileError::DiskFull { saved_samples, saved_ns, .. } = &error else { panic!("{error}") };
                assert_eq!(*saved_samples, stored);
                assert_eq!(*saved_ns, stored / 8 * file_support::INTERVAL_NS);
                assert!(error.to_string().contains("are saved"), "{error}");
                assert!(error.hint().unwrap().contains("slip report"));
                return (batch, stored);
            }
        }
    }
    panic!("the disk did not get full");
}

#[test]
fn child_records_until_the_disk_is_full() {
    let (Some(path), Ok(limit)) = (child_path(), std::env::var("SLIP_LIMIT")) else { return };
    let limit: u64 = limit.parse().unwrap();
    // SAFETY: nothing else runs in this process that could mind the signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    set_file_limit(limit);
    let mut source = Source::default();
    let mut writer = Writer::create(&path, &info(), false).unwrap();
    let (failed, stored) = append_until_full(&mut writer, &mut source);
    assert_eq!(check_samples(&load(&path).unwrap().recording), stored);
    set_file_limit(limit * 10);
    writer.append(&failed).unwrap();
    writer.finish(source.totals()).unwrap();
    assert_eq!(check_samples(&load(&path).unwrap().recording), source.samples);
}

/// Limits the size of the files this process writes, in bytes.
fn set_file_limit(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` lives for the whole call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}
