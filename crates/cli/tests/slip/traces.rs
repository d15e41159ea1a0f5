//! `slip trace`: slow calls to servers as they happen, with their stacks.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
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
        serve_one(&fpm, &tracer, "\"call\"");
        let (calls, summary) = parse(&tracer.finish());
        let [call] = &calls[..] else { panic!("{}: {calls:?}", build.label()) };
        assert_slow(call, port, "ask_slowly", &fpm.inside.join("index.php"), 8);
        assert_eq!(call["frames"][0]["name"], "fgets");
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
