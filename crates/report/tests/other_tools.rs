//! The tools that our files are made for take them. Each test is skipped, with the reason, where its tool is missing.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::PathBuf;
use std::process::Command;

use slip_report::{Format, Options, render};
use support::schema::check;
use support::{both_languages, samples_and_waits};

#[test]
fn go_tool_pprof_reads_the_profile() {
    // Not only on PATH: the usual place of a Go that was unpacked by hand.
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok_and(|output| output.status.success()));
    let Some(go) = go else {
        slip_testkit::skip("go tool pprof", "go is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.pb.gz");
    std::fs::write(&path, render(&both_languages(), Format::Pprof, &Options::default()).unwrap()).unwrap();
    let pprof = |arguments: &[&str]| {
        let output = Command::new(go)
            .args(["tool", "pprof"])
            .args(arguments)
            .arg(&path)
            .env("PPROF_TMPDIR", folder.path())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let top = pprof(&["-top"]);
    assert!(top.contains("Type: wall") && top.contains("Duration: 2s, Total samples = 620ms"), "{top}");
    assert!(top.contains("280ms 45.16% 45.16%      280ms 45.16%  PDOStatement::execute"), "{top}");
    assert!(top.contains("440ms 70.97%  {main}"), "{top}");
    let cpu = pprof(&["-top", "-sample_index=cpu"]);
    assert!(cpu.contains("140ms") && cpu.contains("App\\Price::tax"), "{cpu}");
    let tags = pprof(&["-tags"]);
    for expected in ["GET /cart/<script>", "php-fpm: pool www", "MainThread", "4711", "interpreter"] {
        assert!(tags.contains(expected), "{expected} in {tags}");
    }
    let lines = pprof(&["-top", "-lines", "-tagfocus=pid=1001"]);
    assert!(lines.contains("App\\Price::tax /srv/app/src/Price.php:14"), "{lines}");
    let raw = pprof(&["-raw"]);
    assert!(raw.contains("samples/count wall/nanoseconds[dflt] cpu/nanoseconds"), "{raw}");
}

#[test]
fn speedscope_files_follow_its_schema() {
    let cache = std::env::var_os("SLIP_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/slipstream")));
    let schema =
        cache.map(|cache| cache.join("npm/node_modules/speedscope/dist/release/file-format-schema.json"));
    let Some(schema) = schema.and_then(|path| std::fs::read_to_string(path).ok()) else {
        slip_testkit::skip(
            "speedscope's schema",
            "not in the cache (npm install --prefix ~/.cache/slipstream/npm speedscope)",
        );
        return;
    };
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let recordings = [both_languages(), samples_and_waits()];
    for (recording, include_idle) in recordings.iter().flat_map(|one| [(one, false), (one, true)]) {
        let options = Options { include_idle, ..Options::default() };
        let json = render(recording, Format::Speedscope, &options).unwrap();
        let mut file: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(check(&schema, &schema, &file, "$"), [""; 0]);
        file["profiles"][1]["unit"] = "hours".into();
        assert_ne!(check(&schema, &schema, &file, "$"), [""; 0]);
    }
}
