//! `slip top`: on a real terminal, that of tmux, and once as text.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use serde_json::Value;
use slip_testkit::fpm::{Build, Fpm, Pool, builds};
use slip_testkit::skip;

use crate::harness::{BUSY, Target, kernel_refuses, root_or_skip, run, slip, wait_for};

const SMALL: (u16, u16) = (60, 12);
const LARGE: (u16, u16) = (200, 50);

/// A script that says that it is there, and stays in a function of its own until it may go.
const HELD: &str = "<?php
function held() {
    while (!file_exists(__DIR__ . '/go')) usleep(2000);
}
file_put_contents(__DIR__ . '/in', '');
held();
";

/// A server of tmux with one terminal. Killed when dropped.
struct Tmux {
    name: String,
    folder: tempfile::TempDir,
}

impl Tmux {
    /// Runs this in a terminal of this size; `None`, with a message, without tmux.
    fn start(test: &str, (width, height): (u16, u16), command: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if Command::new("tmux").arg("-V").output().is_err() {
            skip(test, "tmux is not installed");
            return None;
        }
        let name = format!("slip-test.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let tmux = Self { name, folder: tempfile::tempdir().unwrap() };
        let [width, height] = [width, height].map(|size| size.to_string());
        tmux.tell(&[
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            command,
            ";",
            "set",
            "-g",
            "status",
            "off",
        ]);
        Some(tmux)
    }

    /// The same of `slip top` with these arguments, after which the terminal says how it ended and what the terminal is like.
    fn top(test: &str, size: (u16, u16), arguments: &str) -> Option<Self> {
        let slip = slip().display().to_string();
        let after = "echo after $?; stty -a; exec sleep 1000";
        Self::start(test, size, &format!("echo before; {slip} top {arguments}; {after}"))
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-u", "-L", &self.name, "-f", "/dev/null"]).args(words);
        // One that tests run in is none of ours.
        command.env_remove("TMUX").env("TMUX_TMPDIR", self.folder.path()).env("LC_ALL", "C.UTF-8");
        command.output().unwrap()
    }

    #[track_caller]
    fn tell(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the terminal shows.
    #[track_caller]
    fn shown(&self) -> String {
        self.tell(&["capture-pane", "-p"])
    }

    #[track_caller]
    fn press(&self, keys: &[&str]) {
        self.tell(&[&["send-keys"], keys].concat());
    }

    #[track_caller]
    fn resize(&self, (width, height): (u16, u16)) {
        self.tell(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// Waits until the terminal shows something that holds.
    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        wait_for(what, || {
            last = self.shown();
            holds(&last).then(|| last.clone())
        })
    }

    /// Waits until there is a picture of this size. Until `slip` knows of another size, tmux shows what it makes of the old picture: the
    /// last rows of it, or empty ones below it.
    #[track_caller]
    fn wait_picture(&self, (_, height): (u16, u16)) -> String {
        self.wait("a picture", |text| {
            let rows: Vec<&str> = text.lines().collect();
            let is_last = |row: &&str| row.starts_with("q quit");
            rows.len() == usize::from(height) && !rows[0].is_empty() && rows.last().is_some_and(is_last)
        })
    }

    /// What is shown once all of it has been written anew.
    #[track_caller]
    fn written_anew(&self, size: (u16, u16)) -> String {
        // Keys are read in their order: what the second does shows that the first has been done.
        self.press(&["C-l", "/"]);
        self.wait("what is typed", |text| text.lines().last().is_some_and(|row| row.starts_with("/_")));
        self.press(&["Escape"]);
        self.wait_picture(size)
    }

    /// The process in the terminal of this name.
    fn slip_pid(&self) -> String {
        let shell = self.tell(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        wait_for("slip in the terminal", || {
            fs::read_to_string(&children).ok()?.split_whitespace().next().map(str::to_owned)
        })
    }

    /// Waits until the program has ended with this status, and has left the terminal as it was.
    #[track_caller]
    fn wait_end(&self, status: i32) -> String {
        let text = self.wait("the end", |text| text.contains("echonl"));
        assert!(text.contains(&format!("after {status}\n")) && text.contains("before\n"), "{text}");
        for word in ["-icanon", "-echo ", "-isig", "-opost"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
        let flags = self.tell(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(flags.trim(), "0 1", "the first screen, and a cursor");
        text
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        if thread::panicking() {
            let shown = self.run(&["capture-pane", "-p"]).stdout;
            eprintln!("the terminal shows:\n{}", String::from_utf8_lossy(&shown));
        }
        self.run(&["kill-server"]);
    }
}

#[test]
fn a_terminal_of_another_size_shows_nothing_of_the_old_picture() {
    let target = Target::python(BUSY);
    let arguments = format!("--pid {}", target.pid());
    let Some(tmux) = Tmux::top("top resized", SMALL, &arguments) else { return };
    tmux.wait("workers", |text| text.contains(&target.pid()) && text.contains("inner"));
    tmux.press(&["p"]);
    let small = tmux.wait("a pause", |text| text.starts_with("PAUSED"));
    for _ in 0..50 {
        assert_eq!(tmux.shown(), small, "paused");
    }
    tmux.resize(LARGE);
    let large = tmux.wait_picture(LARGE);
    assert_eq!(large, tmux.written_anew(LARGE));
    assert_eq!(large.matches("q quit").count(), 1, "{large}");
    assert!(large.contains("READY") && large.contains("WHERE") && large.contains("Not seen: "), "{large}");
    tmux.resize(SMALL);
    let again = tmux.wait_picture(SMALL);
    assert_eq!(again, tmux.written_anew(SMALL));
    assert_eq!(again, small);
    tmux.press(&["q"]);
    tmux.resize(LARGE);
    tmux.wait_end(0);
}

#[test]
fn keys_do_what_the_help_says() {
    let target = Target::python(BUSY);
    let arguments = format!("--pid {}", target.pid());
    let Some(tmux) = Tmux::top("keys of top", SMALL, &arguments) else { return };
    tmux.wait("workers", |text| text.contains("> 1 worker  by cpu") && text.contains(&target.pid()));
    tmux.press(&["Tab"]);
    tmux.wait("functions", |text| text.contains("OWN") && text.contains("outer"));
    tmux.press(&["N"]);
    tmux.wait("another order", |text| text.contains("by name"));
    tmux.press(&["r"]);
    tmux.wait("the other way round", |text| text.contains("by name, reversed"));
    tmux.press(&["/", "OUT"]);
    tmux.wait("a filter", |text| text.contains("with `OUT`") && !text.contains("inner"));
    tmux.press(&["Enter", "Escape"]);
    tmux.wait("no filter", |text| text.contains("inner") && text.contains("outer"));
    tmux.press(&["t", "Tab"]);
    tmux.wait("threads", |text| text.contains("TID") && text.contains("> 1 thread "));
    tmux.press(&["?"]);
    tmux.wait("the help", |text| text.contains("pause: the picture stays"));
    tmux.press(&["x"]);
    tmux.wait_picture(SMALL);
    tmux.press(&["C-c"]);
    tmux.resize(LARGE);
    tmux.wait_end(130);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let target = Target::python(BUSY);
    for signal in ["TERM", "INT", "HUP"] {
        let arguments = format!("--pid {}", target.pid());
        let Some(tmux) = Tmux::top("top and signals", LARGE, &arguments) else { return };
        tmux.wait_picture(LARGE);
        assert!(Command::new("kill").args(["-s", signal, &tmux.slip_pid()]).status().unwrap().success());
        tmux.wait_end(130);
    }
}

#[test]
fn it_can_be_suspended() {
    let target = Target::python(BUSY);
    let Some(tmux) = Tmux::start("top suspended", LARGE, "exec bash --norc --noprofile") else { return };
    let slip: PathBuf = slip();
    // What is typed before its prompt is lost.
    tmux.wait("a prompt", |text| text.starts_with("bash"));
    tmux.press(&[&format!("{} top --pid {}", slip.display(), target.pid()), "Enter"]);
    for _ in 0..2 {
        tmux.wait_picture(LARGE);
        tmux.press(&["C-z"]);
        let text = tmux.wait("the shell", |text| text.contains("Stopped"));
        assert!(!text.contains("q quit"), "{text}");
        // What is typed belongs to the shell, which shows it.
        tmux.press(&["clear; echo he''re", "Enter"]);
        tmux.wait("an answer", |text| text.contains("here\n"));
        tmux.press(&["fg", "Enter"]);
    }
    tmux.wait_picture(LARGE);
    tmux.press(&["q"]);
    // What is typed before it has ended is its own.
    tmux.wait("a prompt", |text| text.trim_end().ends_with('#') || text.trim_end().ends_with('$'));
    tmux.press(&["echo ended $?", "Enter"]);
    tmux.wait("the end", |text| text.contains("ended 0\n"));
}

#[test]
fn a_target_that_ends_ends_it() {
    let target = Target::python(BUSY);
    let arguments = format!("--pid {}", target.pid());
    let Some(tmux) = Tmux::top("top of a target that ends", LARGE, &arguments) else { return };
    tmux.wait("workers", |text| text.contains(&target.pid()));
    drop(target);
    let text = tmux.wait_end(0);
    assert!(text.contains("note: the target ended after "), "{text}");
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let target = Target::python(BUSY);
    let ran = run(&["top", "--pid", &target.pid()]);
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "error: standard output is no terminal\n\
         hint: `--once` prints the tables as text, and with `--format json` for programs\n"
    );
    let ran = run(&["top", "--pid", "2147483647", "--once"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
}

#[test]
fn once_prints_the_tables() {
    let target = Target::python(BUSY);
    let pid = target.pid();
    let ran = run(&["top", "--pid", &pid, "--once", "--duration", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let row = ran
        .stdout
        .lines()
        .find(|line| line.starts_with(&format!("{pid} ")) || line.contains(&format!(" {pid} ")));
    let row = row.unwrap_or_else(|| panic!("{}", ran.stdout));
    // The last look may have hit a moment between two calls of `inner`.
    assert!((row.contains("inner") || row.contains("outer")) && row.contains("<string>:"), "{row}");
    let functions = ran.stdout.split("functions: 100 %").nth(1).unwrap();
    assert!(functions.contains("outer") && functions.contains("inner"), "{}", ran.stdout);

    let ran = run(&["top", "--pid", &pid, "--once", "--duration", "1", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = ran.json();
    assert_eq!((&document["schema"], &document["sampler"]), (&"slip.top/1".into(), &"outside".into()));
    let thread = &document["threads"][0];
    assert_eq!(thread["pid"].to_string(), pid);
    assert!(["running", "ready"].contains(&thread["state"].as_str().unwrap()), "{thread}");
    let busy_ns = document["busy_ns"].as_u64().unwrap();
    assert!(busy_ns > 0 && busy_ns <= 2 * document["duration_ns"].as_u64().unwrap(), "{document}");
    let outer = function(&document, "outer");
    // It never returns.
    assert_eq!(outer["total_ns"], document["busy_ns"], "{document}");
}

fn function<'a>(document: &'a Value, name: &str) -> &'a Value {
    let functions = document["functions"].as_array().unwrap();
    functions.iter().find(|function| function["name"] == name).unwrap_or_else(|| panic!("{document}"))
}

#[test]
fn a_target_that_ends_while_it_is_watched_once_is_told() {
    let target = Target::python(
        "import time; end = time.time() + 2\nprint('ready', flush=True)\nwhile time.time() < end: pass",
    );
    let ran = run(&["top", "--pid", &target.pid(), "--once", "--duration", "60"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: the target ended after "), "{}", ran.stderr);
    assert!(ran.stdout.contains("<module>"), "{}", ran.stdout);
}

/// Lets a request go when dropped, also where a test has failed.
struct Release<'a>(&'a Fpm);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        fs::write(self.0.outside.join("go"), "").unwrap();
    }
}

/// A pool with two workers, one of which is held in a request.
fn held(build: &Build, check: impl FnOnce(&Fpm)) {
    let pool = Pool { workers: 2, ..Pool::default() };
    let fpm = Fpm::start_pool(build, pool, &[("held.php", HELD)]);
    thread::scope(|scope| {
        scope.spawn(|| fpm.fetch("held.php", "/held?secret=1"));
        let _release = Release(&fpm);
        wait_for("the request", || fpm.outside.join("in").exists().then_some(()));
        check(&fpm);
    });
}

#[test]
fn workers_of_a_pool_have_a_state_and_a_request() {
    for build in builds() {
        held(&build, |fpm| {
            for sampler in ["outside", "kernel"] {
                let what = format!("{}, {sampler}", build.label());
                // Without opcache nothing proves to the kernel's sampler that a request which it reads late is still the same.
                if sampler == "kernel" && !(build.opcache && root_or_skip("slip top --sampler kernel")) {
                    continue;
                }
                let arguments = ["--once", "--duration", "1", "--sampler", sampler, "--format", "json"];
                let ran = run(&[&["top", "--fpm", &fpm.pool], &arguments[..]].concat());
                if kernel_refuses(&ran) {
                    continue;
                }
                assert_eq!(ran.code, 0, "{what}: {}", ran.stderr);
                let document = ran.json();
                let threads = document["threads"].as_array().unwrap();
                let (busy, idle): (Vec<&Value>, Vec<&Value>) =
                    threads.iter().partition(|thread| thread["state"] != "idle");
                assert_eq!((busy.len(), idle.len()), (1, 1), "{what}: {document}");
                assert_eq!(idle[0]["request"], Value::Null, "{what}");
                let request = &busy[0]["request"];
                assert_eq!((&request["method"], &request["uri"]), (&"GET".into(), &"/held".into()), "{what}");
                assert!(request["age_ns"].as_u64().unwrap() > 0, "{what}: {request}");
                let [held_ns, busy_ns] = [&function(&document, "held")["total_ns"], &document["busy_ns"]]
                    .map(|ns| ns.as_u64().unwrap());
                assert!(held_ns > 0 && held_ns * 2 > busy_ns, "{what}: {document}");
                assert_eq!(function(&document, "usleep")["file"], "", "{what}");
            }
        });
    }
}

#[test]
fn a_pool_on_a_terminal_shows_who_is_busy() {
    let Some(build) = builds().into_iter().next() else { return };
    held(&build, |fpm| {
        let Some(tmux) = Tmux::top("top of a pool", SMALL, &format!("--fpm {}", fpm.pool)) else { return };
        tmux.wait("a request", |text| text.contains("GET /held") && text.contains("1 of 2 busy"));
        tmux.press(&["Tab"]);
        tmux.wait("functions", |text| text.contains("usleep") && text.contains("held"));
        tmux.press(&["q"]);
        tmux.resize(LARGE);
        tmux.wait_end(0);
    });
}
