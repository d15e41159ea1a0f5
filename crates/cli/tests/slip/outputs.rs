//! Output that cannot be written, from the start or from some moment on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{BUSY, Recorder, Target, quality, quality_samples, root_or_skip, run, wait_for};

/// Runs `slip record` on a busy target with this output.
#[track_caller]
fn cannot_record(output: &Path, options: &[&str], code: i32, message: &str) {
    let target = Target::python(BUSY);
    let output_name = output.to_str().unwrap();
    let pid = target.pid();
    let arguments = ["record", "--pid", &pid, "--duration", "0.1", "--output", output_name];
    let ran = run(&[&arguments, options].concat());
    assert_eq!(ran.code, code, "{}: {}", output.display(), ran.stderr);
    assert_eq!(ran.stderr, message, "{}", output.display());
    assert_eq!(ran.stdout, "");
}

#[test]
fn a_folder_that_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such");
    let message = format!(
        "error: the folder {} does not exist\n\
         hint: create the folder first, or choose another one with -o\n",
        missing.display()
    );
    cannot_record(&missing.join("a.slip"), &[], 7, &message);
    assert!(!folder.path().join("no").exists());
}

#[test]
fn a_folder_that_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let output = file.join("a.slip");
    let message = format!(
        "error: cannot create {}: Not a directory (os error 20)\n\
         hint: choose another folder with -o\n",
        output.display()
    );
    cannot_record(&output, &[], 7, &message);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_folder_that_takes_no_files_is_not_said_to_be_missing() {
    let message = "error: cannot create /proc/a.slip: No such file or directory (os error 2)\n\
                   hint: choose another folder with -o\n";
    cannot_record(Path::new("/proc/a.slip"), &[], 7, message);
}

#[test]
fn a_file_that_is_no_recording_is_not_overwritten_nor_said_to_hold_samples() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    fs::write(&words, "mine").unwrap();
    for (output, found) in
        [(words.as_path(), "it is of another format"), (folder.path(), "it is not a regular file")]
    {
        let message = format!(
            "error: {} is not a recording: {found}\n\
             hint: recordings are written by `slip record -o NAME.slip`\n",
            output.display()
        );
        cannot_record(output, &["--force"], 2, &message);
    }
    assert_eq!(fs::read(&words).unwrap(), b"mine");
}

#[test]
fn a_file_that_is_there_is_said_before_a_target_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    fs::write(&file, "mine").unwrap();
    // No process has this number.
    let ran = run(&["record", "--pid", "4194304", "--output", file.to_str().unwrap()]);
    let message = format!(
        "error: {} exists already\n\
         hint: choose another name with -o, or overwrite it with --force\n",
        file.display()
    );
    assert_eq!((ran.code, ran.stderr.as_str(), ran.stdout.as_str()), (2, message.as_str(), ""));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_report_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(BUSY);
    let recorder = Recorder::start(&file, &["--pid", &target.pid(), "--duration", "0.3"]);
    assert_eq!(recorder.ends().code, 0);
    let name = file.to_str().unwrap();
    for (output, why) in
        [("/proc/report.md", "No such file or directory"), ("/dev/full", "No space left on device")]
    {
        let ran = run(&["report", name, "--output", output]);
        assert_eq!(ran.code, 7, "{}", ran.stderr);
        assert!(ran.stderr.starts_with(&format!("error: cannot write `{output}`: {why}")), "{}", ran.stderr);
    }
    for verb in [["report", name], ["dump", &format!("--pid={}", target.pid())]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(crate::harness::slip()).args(verb).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{verb:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("error: cannot write to standard output: No space left"), "{stderr}");
    }
}

#[test]
fn a_report_does_not_overwrite_its_recording() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("a.slip"), folder.path().join("link"));
    let target = Target::python(BUSY);
    let recorder = Recorder::start(&file, &["--pid", &target.pid(), "--duration", "0.1"]);
    assert_eq!(recorder.ends().code, 0);
    fs::hard_link(&file, &link).unwrap();
    let before = fs::read(&file).unwrap();
    for output in [&file, &link] {
        let ran = run(&["report", file.to_str().unwrap(), "--output", output.to_str().unwrap()]);
        let message = "error: the report would overwrite the recording\nhint: choose another name with -o\n";
        assert_eq!((ran.code, ran.stderr.as_str()), (2, message));
    }
    assert!(fs::read(&file).unwrap() == before);
}

/// A small disk of its own. Taken away when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None`, with a message, if this test may not mount one.
    fn mount(test: &str, size: &str) -> Option<Self> {
        if !root_or_skip(test) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "slip-test"]).arg(folder.path());
        if command.status().is_ok_and(|status| status.success()) {
            Some(Self(folder))
        } else {
            slip_testkit::skip(test, "no disk can be mounted here");
            None
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Uses up all the space that is left.
    fn fill(&self) {
        let mut filler = fs::File::create(self.file("filler")).unwrap();
        while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn what_was_saved_before_the_disk_was_full_stays_readable() {
    let Some(disk) = SmallDisk::mount("what_was_saved_before_the_disk_was_full", "4m") else { return };
    let file = disk.file("a.slip");
    let target = Target::python(BUSY);
    let recorder = Recorder::start(&file, &["--pid", &target.pid(), "--rate", "499"]);
    wait_for("samples on the disk", || (quality_samples(&file) > 0).then_some(()));
    disk.fill();
    let ran = recorder.ends();
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    let begin = format!("error: no space left for {}: the first ", file.display());
    let end = format!("are saved\nhint: what is saved can be read: slip report {}\n", file.display());
    assert!(ran.stderr.starts_with(&begin) && ran.stderr.ends_with(&end), "{}", ran.stderr);
    // The disk is full still: reading needs no space.
    let saved = quality(&file);
    let said = format!("({} samples)", saved["samples"]);
    assert!(saved["samples"].as_u64().unwrap() > 0 && ran.stderr.contains(&said), "{saved} {}", ran.stderr);
    assert_eq!(saved["complete"], false);
    let report = run(&["report", file.to_str().unwrap()]);
    assert!(report.code == 0 && report.stdout.contains("inner"), "{}", report.stderr);
    assert!(report.stderr.starts_with("warning: the recorder ended without closing the file"));
}

#[test]
fn a_disk_that_is_full_from_the_start_gets_no_file() {
    let Some(disk) = SmallDisk::mount("a_disk_that_is_full_from_the_start", "64k") else { return };
    disk.fill();
    let file = disk.file("a.slip");
    let target = Target::python(BUSY);
    let ran = Recorder::start(&file, &["--pid", &target.pid(), "--duration", "60"]).ends();
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: no space left for "), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhint: free some space, or choose another disk"), "{}", ran.stderr);
    assert!(!file.exists());
}
