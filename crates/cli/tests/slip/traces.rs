//! `slip trace`: slow calls to servers as they happen, with their stacks.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use slip_record::unix_ns;
use slip_testkit::fpm::{Build, Fpm, builds};
use slip_testkit::skip;
use tempfile::TempDir;

use crate::harness::{Target, slip, wait_for};

/// What a slow answer takes, and from what on a call is slow: a fast one may have to wait for a CPU.
const DRAG: Duration = Duration::from_millis(60);
const SLOWER_THAN: &str = "40ms";

/// A key that no output may have.
const KEY: &str = "hunter2";

/// Answers `EVAL` late and all else at once; its port.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut bytes = [0; 256];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    if bytes[..len].windows(4).any(|word| word == b"EVAL") {
                        thread::sleep(DRAG);
                    }
                    if stream.write_all(b"+OK\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// A `slip trace` that runs beside the test. Killed when dropped.
struct Tracer {
    child: Child,
    folder: TempDir,
}

impl Tracer {
    /// Once it watches; `None` where the kernel allows none.
    fn start(arguments: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let [out, err] = ["out", "err"].map(|name| File::create(folder.path().join(name)).unwrap());
        let mut command = Command::new(slip());
        command.args(["trace", "--slower-than", SLOWER_THAN]).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        let mut tracer = Self { child, folder };
        let said = wait_for("the begin of the trace", || {
            let said = tracer.read("err");
            (said.ends_with('\n') || tracer.child.try_wait().unwrap().is_some()).then_some(said)
        });
        if said.contains("error: single calls are seen by programs in the kernel alone") {
            skip("traces", said.trim());
            return None;
        }
        assert!(said.starts_with("calls to servers that take 40.0 ms or more"), "{said}");
        Some(tracer)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Until it has told a call.
    fn wait(&self, mark: &str) {
        wait_for("a slow call", || self.read("out").contains(mark).then_some(()));
    }

    /// All that it printed; it is interrupted.
    fn finish(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(130), "{}", self.read("err"));
        assert!(!self.read("err").contains(KEY));
        self.read("out")
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the trace said:\n{}{}", self.read("err"), self.read("out"));
        }
    }
}

/// What was printed: the calls, and the summary behind them.
fn parse(out: &str) -> (Vec<Value>, Value) {
    assert!(!out.contains(KEY), "{out}");
    let mut lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap();
    assert_eq!(summary["event"], "summary", "{out}");
    (lines, summary)
}

/// There is one slow call, most of which is the server's work, and its innermost function with a file is this one at this line.
#[track_caller]
fn assert_slow(call: &Value, port: u16, function: &str, file: &Path, line: u64) {
    assert_eq!(call["schema"], "slip.trace/1");
    assert_eq!(call["address"], format!("127.0.0.1:{port}"), "{call}");
    assert_eq!((&call["protocol"], &call["command"]), (&"redis".into(), &"EVAL".into()), "{call}");
    let (total_ns, work_ns) = (call["total_ns"].as_u64().unwrap(), call["parts"]["work"].as_u64().unwrap());
    let parts: u64 = call["parts"].as_object().unwrap().values().map(|ns| ns.as_u64().unwrap()).sum();
    assert_eq!(parts, total_ns);
    assert!(u128::from(work_ns) >= DRAG.as_nanos() && 2 * work_ns > total_ns, "{call}");
    let frames = call["frames"].as_array().unwrap();
    let frame =
        frames.iter().find(|frame| frame["kind"] != "php_internal").unwrap_or_else(|| panic!("{call}"));
    assert_eq!((&frame["name"], &frame["line"]), (&function.into(), &line.into()), "{call}");
    assert_eq!(frame["file"], file.display().to_string(), "{call}");
}

fn script(port: u16) -> String {
    format!(
        "<?php
function ask($server, $question) {{
    fwrite($server, $question);
    return fgets($server);
}}
function ask_slowly($server) {{
    fwrite($server, \"*2\\r\\n$4\\r\\nEVAL\\r\\n$7\\r\\n{KEY}\\r\\n\");
    return fgets($server);
}}
$server = stream_socket_client('tcp://127.0.0.1:{port}');
for ($i = 0; $i < 5; $i++) ask($server, \"*2\\r\\n$3\\r\\nGET\\r\\n$7\\r\\n{KEY}\\r\\n\");
ask_slowly($server);
while (!file_exists(__DIR__ . '/go')) usleep(2000);
echo 'done';
"
    )
}

/// A pool whose worker has served once.
fn pool(build: &Build, port: u16) -> Fpm {
    let fpm = Fpm::start(build, &[("index.php", &script(port))]);
    fs::write(fpm.outside.join("go"), "").unwrap();
    fpm.fetch("index.php", "/");
    fs::remove_file(fpm.outside.join("go")).unwrap();
    fpm
}

/// One request, which goes on until its slow call has been told: what its functions are called is known as long as it runs.
fn serve_one(fpm: &Fpm, tracer: &Tracer, mark: &str) {
    thread::scope(|scope| {
        let fetched = scope.spawn(|| fpm.fetch("index.php", "/"));
        tracer.wait(mark);
        fs::write(fpm.outside.join("go"), "").unwrap();
        assert_eq!(fetched.join().unwrap(), "done");
    });
}

#[test]
fn a_slow_call_of_php_is_told_once_with_its_line() {
    let port = serve();
    for build in builds().into_iter().filter(|build| build.opcache) {
        let fpm = pool(&build, port);
        let asked = ["--fpm", &fpm.pool, "--format", "json"];
        let Some(tracer) = Tracer::start(&asked) else { return };
        let before_ns = unix_ns();
        serve_one(&fpm, &tracer, "\"call\"");
        let after_ns = unix_ns();
        let (calls, summary) = parse(&tracer.finish());
        let [call] = &calls[..] else { panic!("{}: {calls:?}", build.label()) };
        assert_slow(call, port, "ask_slowly", &fpm.inside.join("index.php"), 8);
        assert_eq!(call["frames"][0]["name"], "fgets");
        let ended_ns = call["unix_ns"].as_u64().unwrap();
        assert!(
            (before_ns + DRAG.as_nanos() as u64..after_ns).contains(&ended_ns),
            "{before_ns} {call} {after_ns}"
        );
        assert_eq!(
            (&summary["calls"], &summary["slow"], &summary["lost"]),
            (&6.into(), &1.into(), &0.into())
        );
        assert_eq!(summary["servers"][0]["slow"], 1);
    }
}

#[test]
fn text_has_the_call_its_longest_part_and_its_line() {
    let port = serve();
    let Some(build) = builds().into_iter().find(|build| build.opcache) else { return };
    let fpm = pool(&build, port);
    let Some(tracer) = Tracer::start(&["--fpm", &fpm.pool, "--endpoint", "redis"]) else { return };
    serve_one(&fpm, &tracer, "server work");
    let out = tracer.finish();
    assert!(!out.contains(KEY), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    let worker = fpm.workers()[0];
    assert!(lines[0].contains(&format!("  {worker}  redis 127.0.0.1:{port}  EVAL  ")), "{out}");
    let parts = lines[0].rsplit("  ").next().unwrap();
    assert!(parts.starts_with("server work "), "{out}");
    assert_eq!(lines[1], "    fgets");
    assert_eq!(lines[2], format!("    ask_slowly ({}:8)", fpm.inside.join("index.php").display()));
    assert!(out.contains("\n6 calls in ") && out.contains(", 1 of them took 40.0 ms or more\n"), "{out}");
}

#[test]
fn a_slow_call_of_python_is_told_once_with_its_line() {
    let port = serve();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker.py");
    let text = format!(
        "import socket, sys
def ask_slowly(server):
    server.sendall(b'*2\\r\\n$4\\r\\nEVAL\\r\\n$7\\r\\n{KEY}\\r\\n')
    return server.recv(100)
print('ready', flush=True)
for _ in sys.stdin:
    server = socket.create_connection(('127.0.0.1', {port}))
    for _ in range(5):
        server.sendall(b'*2\\r\\n$3\\r\\nGET\\r\\n$7\\r\\n{KEY}\\r\\n')
        server.recv(100)
    ask_slowly(server)
"
    );
    fs::write(&file, text).unwrap();
    let mut target = Target::start(Command::new(crate::harness::python()).arg(&file));
    let pid = target.pid();
    let Some(tracer) = Tracer::start(&["--pid", &pid, "--format", "json"]) else { return };
    target.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    tracer.wait("\"call\"");
    let (calls, summary) = parse(&tracer.finish());
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_slow(call, port, "ask_slowly", &file, 4);
    assert_eq!(call["pid"].to_string(), pid);
    assert_eq!((&summary["calls"], &summary["slow"]), (&6.into(), &1.into()));
}

/// A program that asks slowly as often as its standard input has lines, and before that what `first` does.
fn asks(port: u16, first: &str) -> String {
    format!(
        "import os, socket, sys
def ask_slowly(server):
    server.sendall(b'*2\\r\\n$4\\r\\nEVAL\\r\\n$7\\r\\n{KEY}\\r\\n')
    return server.recv(100)
server = socket.create_connection(('127.0.0.1', {port}))
{first}
print('ready', flush=True)
for _ in sys.stdin:
    ask_slowly(server)
"
    )
}

fn python_file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worker.py");
    fs::write(&file, text).unwrap();
    (folder, file)
}

#[test]
fn the_first_call_of_a_command_is_not_missed() {
    let port = serve();
    // Nothing is imported that takes time, and nothing is done before.
    let text = format!(
        "import _socket, time
server = _socket.socket()
server.connect(('127.0.0.1', {port}))
server.sendall(b'*2\\r\\n$4\\r\\nEVAL\\r\\n$7\\r\\n{KEY}\\r\\n')
server.recv(100)
time.sleep(0.1)
"
    );
    let (_folder, file) = python_file(&text);
    let python = crate::harness::python().display().to_string();
    let command = ["trace", "--slower-than", SLOWER_THAN, "--format", "json", "--"];
    let ran = crate::harness::run(&[&command[..], &[&python, file.to_str().unwrap()]].concat());
    if ran.stderr.contains("error: single calls are seen by programs in the kernel alone") {
        return skip("traces", ran.stderr.trim());
    }
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let (calls, summary) = parse(&ran.stdout);
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&summary["calls"], &summary["slow"]), (&1.into(), &1.into()));
    // On a busy machine the interpreter may not have been found yet.
    if call["no_stack"].is_null() {
        assert_slow(call, port, "<module>", &file, 5);
    } else {
        assert_eq!(call["no_stack"], "no interpreter had been found in the process yet");
    }
}

#[test]
fn the_calls_of_a_program_without_an_interpreter_have_no_stack() {
    let port = serve();
    let bash = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'EVAL {KEY}\\r\\n' >&3; read -r -n 5 <&3");
    let command =
        ["trace", "--slower-than", SLOWER_THAN, "--format", "json", "--", "/bin/bash", "-c", bash.as_str()];
    let ran = crate::harness::run(&command);
    if ran.stderr.contains("error: single calls are seen by programs in the kernel alone") {
        return skip("traces", ran.stderr.trim());
    }
    let (calls, summary) = parse(&ran.stdout);
    let [call] = &calls[..] else { panic!("{calls:?}: {}", ran.stderr) };
    // What it says is of no protocol that is known.
    assert_eq!((&call["command"], &call["frames"]), (&"".into(), &Value::Array(Vec::new())));
    assert_eq!(call["no_stack"], "no interpreter had been found in the process yet");
    assert_eq!((&summary["slow"], &summary["without_stack"]), (&1.into(), &1.into()));
}

#[test]
fn a_command_of_redis_is_known_on_a_connection_that_is_older_than_the_trace() {
    let port = serve();
    // A question is under way when the trace begins: what is seen of the connection first is an answer.
    let (_folder, file) =
        python_file(&asks(port, &format!("server.sendall(b'*2\\r\\n$3\\r\\nGET\\r\\n$7\\r\\n{KEY}\\r\\n')")));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("for _ in sys.stdin:", "for _ in sys.stdin:\n    server.recv(100)"))
        .unwrap();
    let mut target = Target::start(Command::new(crate::harness::python()).arg(&file));
    let pid = target.pid();
    let Some(tracer) = Tracer::start(&["--pid", &pid, "--format", "json"]) else { return };
    target.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    tracer.wait("\"call\"");
    let (calls, _) = parse(&tracer.finish());
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_slow(call, port, "ask_slowly", &file, 4);
}

#[test]
fn a_child_that_a_target_forks_is_traced_with_its_own_stacks() {
    let port = serve();
    let (_folder, file) = python_file(&asks(port, ""));
    let text = fs::read_to_string(&file).unwrap();
    // The parent asks once, on its connection; its child on one of its own until it has been told.
    let forks = "    child = os.fork()
    if not child:
        server = socket.create_connection(server.getpeername())
        while os.getppid() != 1: ask_slowly(server)
        os._exit(0)
    ask_slowly(server)
";
    fs::write(&file, text.replace("    ask_slowly(server)\n", forks)).unwrap();
    let mut target = Target::start(Command::new(crate::harness::python()).arg(&file));
    let pid = target.pid();
    let Some(tracer) = Tracer::start(&["--pid", &pid, "--children", "--format", "json"]) else { return };
    target.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let number: u32 = pid.parse().unwrap();
    let of_child = |call: &Value| call["pid"] != number && call["no_stack"].is_null();
    wait_for("a slow call of the child", || {
        let out = tracer.read("out");
        // The last line may not be whole.
        let whole = out.lines().take(out.matches('\n').count());
        whole.map(|line| serde_json::from_str(line).unwrap()).find(|call: &Value| of_child(call))
    });
    drop(target);
    let (calls, _) = parse(&tracer.finish());
    let [parent] = &calls.iter().filter(|call| call["pid"] == number).collect::<Vec<_>>()[..] else {
        panic!("{calls:?}")
    };
    let child = calls.iter().find(|call| of_child(call)).unwrap();
    assert_slow(parent, port, "ask_slowly", &file, 4);
    assert_slow(child, port, "ask_slowly", &file, 4);
}

#[test]
fn a_target_that_dies_during_a_slow_call_ends_the_trace_without_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_folder, file) = python_file(&asks(port, ""));
    let mut target = Target::start(Command::new(crate::harness::python()).arg(&file));
    let (mut server, pid) = (listener.accept().unwrap().0, target.pid());
    let Some(mut tracer) = Tracer::start(&["--pid", &pid, "--format", "json"]) else { return };
    let stdin = target.0.stdin.as_mut().unwrap();
    // One that ends, and one that never will.
    stdin.write_all(b"go\ngo\n").unwrap();
    let mut bytes = [0; 256];
    assert!(server.read(&mut bytes).unwrap() > 0);
    thread::sleep(DRAG);
    server.write_all(b"+OK\r\n").unwrap();
    assert!(server.read(&mut bytes).unwrap() > 0);
    drop(target);
    let code = wait_for("the end of the trace", || tracer.child.try_wait().unwrap()).code();
    assert_eq!(code, Some(0), "{}", tracer.read("err"));
    let (calls, summary) = parse(&tracer.read("out"));
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&call["command"], &summary["calls"]), (&"EVAL".into(), &1.into()));
    assert_eq!(summary["lost"], 0);
}

#[test]
fn a_target_that_becomes_another_program_is_traced_on() {
    let port = serve();
    let (_folder, file) = python_file(&asks(port, ""));
    let (_other_folder, other) = python_file(&format!("#\n#\n{}", asks(port, "")));
    let text = fs::read_to_string(&file).unwrap();
    let becomes = format!(
        "    ask_slowly(server)\n    sys.stdin.readline()\n    os.execv(sys.executable, [sys.executable, '{}'])\n",
        other.display()
    );
    fs::write(&file, text.replace("    ask_slowly(server)\n", &becomes)).unwrap();
    let mut target = Target::start(Command::new(crate::harness::python()).arg(&file));
    let pid = target.pid();
    let Some(tracer) = Tracer::start(&["--pid", &pid, "--format", "json"]) else { return };
    target.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    tracer.wait("\"call\"");
    let of_other = |call: &Value| call["frames"].to_string().contains(other.to_str().unwrap());
    // It asks until its new program has been found.
    wait_for("a slow call of the other program", || {
        target.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let out = tracer.read("out");
        let whole = out.lines().take(out.matches('\n').count());
        whole.map(|line| serde_json::from_str(line).unwrap()).find(|call: &Value| of_other(call))
    });
    let (calls, _) = parse(&tracer.finish());
    assert_slow(&calls[0], port, "ask_slowly", &file, 4);
    assert_slow(calls.iter().find(|call| of_other(call)).unwrap(), port, "ask_slowly", &other, 6);
    assert!(calls.iter().all(|call| call["command"] == "EVAL"), "{calls:?}");
}

#[test]
fn only_the_kernel_sees_single_calls() {
    let ran = crate::harness::run(&["trace", "--rung", "proc", "--pid", "1"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with("error: `--rung proc` does not see single calls\nhint: "),
        "{}",
        ran.stderr
    );
}
