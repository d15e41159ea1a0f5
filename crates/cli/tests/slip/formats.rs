//! Outputs of the command, as other tools read them.

use std::process::Command;

use crate::harness::{BUSY, Target, WAITING, run, slip};

#[test]
fn every_format_of_a_real_recording_is_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let name = file.to_str().unwrap();
    let target = Target::python(BUSY);
    let ran = run(&["record", "--pid", &target.pid(), "--duration", "1", "--output", name, "--quiet"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let json = run(&["report", name, "--format", "json"]).json();
    assert_eq!(json["schema"], "slip.report/1");
    let speedscope = run(&["report", name, "--format", "speedscope"]).json();
    assert_eq!(speedscope["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let ns: u64 =
        speedscope["profiles"][0]["weights"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).sum();
    let firefox = run(&["report", name, "--format", "firefox"]).json();
    let of_threads = firefox["threads"].as_array().unwrap().iter();
    let weights = of_threads.flat_map(|thread| thread["samples"]["weight"].as_array().unwrap());
    assert_eq!(weights.map(|ms| (ms.as_f64().unwrap() * 1e6).round() as u64).sum::<u64>(), ns);
    let chrome = run(&["report", name, "--format", "chrome"]).json();
    let samples = chrome["samples"].as_array().unwrap().iter();
    assert_eq!(samples.map(|sample| sample["weight"].as_u64().unwrap()).sum::<u64>(), ns);
    assert!(
        run(&["report", name, "--format", "collapsed"])
            .stdout
            .lines()
            .all(|line| { line.rsplit_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok()) })
    );
    let pid = format!("(pid {})", target.pid());
    for (options, told_apart) in [(&[][..], false), (&["--per-worker"][..], true)] {
        let ran = run(&[&["report", name, "--format", "collapsed"], options].concat());
        assert_eq!(ran.stdout.contains(&pid), told_apart, "{}", ran.stdout);
        let ran = run(&[&["report", name], options].concat());
        assert_eq!(ran.stdout.contains("| worker "), told_apart, "{}", ran.stdout);
    }
    let pprof = folder.path().join("a.pb.gz");
    assert_eq!(run(&["report", name, "--format", "pprof", "--output", pprof.to_str().unwrap()]).code, 0);
    match Command::new("go").args(["tool", "pprof", "-top"]).arg(&pprof).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("inner"), "{text} {}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => slip_testkit::skip("every_format_of_a_real_recording_is_well_formed", "no `go` for pprof"),
    }
}

#[test]
fn a_dump_reads_well() {
    let target = Target::python(WAITING);
    target.wait_until_it_waits();
    let ran = run(&["dump", "--pid", &target.pid()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    insta::with_settings!({filters => vec![
        (r"process \d+", "process PID"),
        (r"thread \d+", "thread TID"),
        (r"3\.11\.\d+", "3.11.N"),
    ]}, {
        insta::assert_snapshot!(ran.stdout, @r#"
        process PID: python3.11 -c (CPython 3.11.N)
          thread TID "python3.11": waiting
            waiting (<string>:4)
            <module> (<string>:6)
        "#);
    });
}

#[test]
fn a_dump_of_php_without_a_web_server_shows_the_script_alone() {
    let Some(php) = slip_testkit::phps().into_iter().next() else { return };
    let text = "<?php\necho \"ready\\n\";\nfgets(STDIN);\n";
    let mut child = slip_testkit::Launch::text(&php, "waits.php", text).start().unwrap();
    child.wait_ready().unwrap();
    let ran = run(&["dump", "--pid", &child.pid().to_string()]);
    let script = child.folder().join("waits.php").display().to_string();
    assert!(ran.stdout.contains(&format!("\n    ({script}, ")), "{} {}", ran.stdout, ran.stderr);
}

#[test]
fn terminal_escapes_of_a_target_are_shown_not_sent() {
    let text = "
import sys
ready = 'ready'
code = compile('def hostile():\\n    print(ready, flush=True) or sys.stdin.readline()\\nhostile()', '\\x1b]0;title\\x07evil\\x1b[31m.py', 'exec')
exec(code)
";
    let target = Target::python(text);
    let ran = run(&["dump", "--pid", &target.pid()]);
    assert!(
        ran.stdout.contains(r"hostile (\x1b]0;title\x07evil\x1b[31m.py:2)") && !ran.stdout.contains('\x1b'),
        "{:?}",
        ran.stdout
    );
}

#[test]
fn check_says_what_works_and_what_it_cannot_see() {
    let ran = run(&["check"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for words in ["sampler: ", "cannot see:", "CPython", "PHP"] {
        assert!(ran.stdout.contains(words), "{}", ran.stdout);
    }
    let target = Target::python(WAITING);
    let ran = run(&["check", "--pid", &target.pid()]);
    assert!(ran.stdout.contains(&format!("ok      {}", target.pid())), "{}", ran.stdout);
}

#[test]
fn completions_and_man_pages() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).stdout.contains("slip"));
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&["man", folder.path().to_str().unwrap()]).code, 0);
    let page = std::fs::read_to_string(folder.path().join("slip-record.1")).unwrap();
    assert!(page.contains("20000"), "{page}");
    for command in ["budget", "diff"] {
        assert!(folder.path().join(format!("slip-{command}.1")).exists());
        assert!(run(&["completions", "bash"]).stdout.contains(command));
    }
    let version = Command::new(slip()).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("slip 0."));
}
