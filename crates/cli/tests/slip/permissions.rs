//! Processes that may not be read: what is in the way, and what helps.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{Ran, Target, WAITING, copy_program, python, root_or_skip, slip};

/// Runs `slip` by way of `setpriv` with these options, in a folder of its own, and says how many files that has then.
fn run_in_folder(options: &[&str], arguments: &[&str]) -> (Ran, usize) {
    // The build folder may not be open to others.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let copy = folder.path().join("slip");
    copy_program(&slip(), &copy);
    let mut command = Command::new("setpriv");
    command.args(options).arg(&copy).args(arguments).current_dir(folder.path());
    let ran = Ran::from(command.output().unwrap());
    (ran, std::fs::read_dir(folder.path()).unwrap().count())
}

/// The same, where nothing is to be recorded.
fn run_with(options: &[&str], arguments: &[&str]) -> Ran {
    let (ran, files) = run_in_folder(options, arguments);
    assert_eq!(files, 1, "a recording was begun");
    ran
}

const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

#[track_caller]
fn is_denied(options: &[&str], target: &Target, reason: &str, hint: &str) {
    let pid = target.pid();
    for verb in [&["dump"][..], &["record"], &["top", "--once"]] {
        let ran = run_with(options, &[verb, &["--pid", &pid]].concat());
        assert_eq!(ran.code, 5, "{verb:?}: {}", ran.stderr);
        let expected = format!("error: not permitted to read process {pid}: {reason}\nhint: {hint}\n");
        assert_eq!(ran.stderr, expected, "{verb:?}");
    }
    let ran = run_with(options, &["check", "--pid", &pid]);
    assert_eq!(ran.code, 5, "check: {}", ran.stderr);
    let expected =
        format!("missing {pid} not permitted to read process {pid}: {reason}\n        fix: {hint}\n");
    assert!(ran.stdout.contains(&expected), "{}", ran.stdout);
}

#[test]
fn who_may_not_use_the_kernel_s_sampler_is_told_and_has_the_other() {
    if !root_or_skip("who_may_not_use_the_kernel_s_sampler_is_told_and_has_the_other") {
        return;
    }
    let program = python();
    let command = ["--", program.to_str().unwrap(), "-c", "sum(i * i for i in range(5_000_000))"];
    let asked = |arguments: &[&'static str]| [&["record", "--rate", "499"], arguments, &command[..]].concat();
    let (ran, files) = run_in_folder(&NOBODY, &asked(&[]));
    assert_eq!((ran.code, files), (0, 2), "{}", ran.stderr);
    let note = "note: the stacks are read from outside, not by the kernel: the kernel refuses eBPF programs";
    assert!(
        ran.stderr.contains(note) && ran.stderr.contains("\nhint: as root, or with CAP_BPF"),
        "{}",
        ran.stderr
    );
    for text in ["Sampler `outside`", "the stacks are read from outside, not by the kernel"] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    // Who names a sampler is told of it if it is not to be had, and not if it is.
    let ran = run_with(&NOBODY, &asked(&["--sampler", "kernel"]));
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    let (ran, _) = run_in_folder(&NOBODY, &asked(&["--sampler", "outside"]));
    assert!(ran.code == 0 && !ran.stderr.contains("note:"), "{}", ran.stderr);
}

#[test]
fn who_may_not_load_programs_cannot_trace_and_is_told() {
    if !root_or_skip("who_may_not_load_programs_cannot_trace_and_is_told") {
        return;
    }
    let ran = run_with(&NOBODY, &["trace", "--pid", &std::process::id().to_string()]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    let said =
        "error: single calls are seen by programs in the kernel alone: the kernel refuses eBPF programs";
    assert!(ran.stderr.starts_with(said) && ran.stderr.contains("\nhint: as root"), "{}", ran.stderr);
}

#[test]
fn who_may_not_keep_a_budget_in_the_kernel_has_a_coarse_one_and_is_told() {
    if !root_or_skip("who_may_not_keep_a_budget_in_the_kernel_has_a_coarse_one_and_is_told") {
        return;
    }
    let program = python();
    let command = ["--", program.to_str().unwrap(), "-c", "sum(i * i for i in range(5_000_000))"];
    let asked =
        |rung: &[&'static str]| [&["record", "--rate", "499", "--budget"], rung, &command[..]].concat();
    let (ran, files) = run_in_folder(&NOBODY, &asked(&[]));
    assert_eq!((ran.code, files), (0, 2), "{}", ran.stderr);
    let note =
        "\nnote: the budget is kept by looks at /proc, not by the kernel: the kernel refuses eBPF programs";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    let ran = run_with(&NOBODY, &asked(&["--rung", "tracepoints"]));
    assert!(ran.code == 5 && ran.stderr.contains("`--rung proc` needs nothing"), "{}", ran.stderr);
    let (ran, _) = run_in_folder(&NOBODY, &asked(&["--rung", "proc"]));
    assert!(ran.code == 0 && !ran.stderr.contains("note: the budget is kept"), "{}", ran.stderr);
}

#[test]
fn on_a_kernel_that_does_not_describe_itself_stacks_are_read_from_outside() {
    const NAME: &str = "on_a_kernel_that_does_not_describe_itself_stacks_are_read_from_outside";
    if !root_or_skip(NAME) {
        return;
    }
    if !std::fs::exists("/sys/kernel/btf/vmlinux").unwrap() {
        return slip_testkit::skip(NAME, "this kernel has no types that could be hidden");
    }
    let (target, folder) = (Target::python(WAITING), tempfile::tempdir().unwrap());
    let pid = target.pid();
    // It looks like a kernel built without CONFIG_DEBUG_INFO_BTF, whose folder is not there either.
    let hidden = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"", "sh"]);
        Ran::from(command.arg(slip()).args(arguments).current_dir(folder.path()).output().unwrap())
    };
    let ran = hidden(&["record", "--pid", &pid, "--duration", "0.2"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for text in [
        "note: the stacks are read from outside, not by the kernel: the kernel has no description of its types",
        "\nhint: a kernel built with CONFIG_DEBUG_INFO_BTF can\n",
    ] {
        assert!(ran.stderr.contains(text), "{text}: {}", ran.stderr);
    }
    let ran = hidden(&["record", "--pid", &pid, "--sampler", "kernel", "--output", "other.slip"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let ran = hidden(&["check"]);
    assert!(ran.stdout.contains("the kernel has no description of its types"), "{}", ran.stdout);
}

#[test]
fn another_users_process() {
    if !root_or_skip("another_users_process") {
        return;
    }
    is_denied(
        &NOBODY,
        &Target::python(WAITING),
        "it belongs to user 0, we run as user 65534",
        "run as root, or give the program CAP_SYS_PTRACE: `sudo setcap cap_sys_ptrace+ep $(command -v slip)`",
    );
}

#[test]
fn root_without_the_capability() {
    if !root_or_skip("root_without_the_capability") {
        return;
    }
    is_denied(
        &["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"],
        &Target::python(WAITING),
        "the kernel refuses although we are root: CAP_SYS_PTRACE is missing",
        "in a container add the capability: `docker run --cap-add SYS_PTRACE …`",
    );
}

#[test]
fn a_process_of_the_same_user_that_is_not_dumpable() {
    if !root_or_skip("a_process_of_the_same_user_that_is_not_dumpable") {
        return;
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(scope.trim(), "" | "0") {
        slip_testkit::skip("a_process_of_the_same_user_that_is_not_dumpable", "Yama is in the way first");
        return;
    }
    // As php-fpm does it with its workers unless `process.dumpable` is set: PR_SET_DUMPABLE is 4.
    let text = format!("import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n{WAITING}");
    let as_nobody =
        |text: &str| Target::start(Command::new("setpriv").args(NOBODY).arg(python()).args(["-c", text]));
    is_denied(
        &NOBODY,
        &as_nobody(&text),
        "it belongs to the same user but is not dumpable",
        "run as root, or for PHP-FPM set `process.dumpable = yes` in the pool and reload it",
    );
    // Without that, nothing else is in the way.
    let target = as_nobody(WAITING);
    let ran = run_with(&NOBODY, &["dump", "--pid", &target.pid()]);
    assert!(ran.code == 0 && ran.stdout.contains("waiting"), "{} {}", ran.stdout, ran.stderr);
}
