//! `slip check`: what works on this machine, what is missing, and the line that fixes it.

use std::fs;

use slip_record::{OutsideOptions, OutsideSampler, Sampler, Sink, TargetIssue, TargetSet};
use slip_remote::status_value;
use slip_report::clean;

use crate::args::CheckOptions;
use crate::failure::{self, Failure, of_issue};
use crate::record::target_of;

/// Capabilities by their bit in `CapEff`, with what they are needed for.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// Kernel and machine, for the header of a recording.
pub(crate) fn host() -> String {
    let read = |file: &str| fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
    format!("{} {} x86_64", read("ostype").trim(), read("osrelease").trim())
}

struct Line {
    works: bool,
    what: &'static str,
    state: String,
    fix: Option<String>,
}

/// Checks the machine, and the target if one is named.
pub(crate) fn run(options: &CheckOptions) -> Result<(), Failure> {
    let mut text = format!("{}\n\n", host());
    let lines = machine();
    for line in &lines {
        text +=
            &format!("{} {:<28} {}\n", if line.works { "ok     " } else { "missing" }, line.what, line.state);
        if let Some(fix) = &line.fix {
            text += &format!("        fix: {fix}\n");
        }
    }
    text += "\nsampler: outside (reads memory with process_vm_readv; nothing is stopped or written)\n";
    text += "cannot see:\n";
    for limit in OutsideSampler::new(OutsideOptions::default()).cannot_see() {
        text += &format!("  - {limit}\n");
    }
    text += &format!("\nreads: {}\n", slip_record::supported());
    let named = !options.target.pid.is_empty() || options.target.fpm.is_some();
    let result = if named { check_target(options, &mut text) } else { Ok(()) };
    crate::print(text.as_bytes())?;
    result
}

fn check_target(options: &CheckOptions, text: &mut String) -> Result<(), Failure> {
    let (target, name) = target_of(&options.target, None)?;
    let mut targets = TargetSet::find(target)?;
    let mut sampler = OutsideSampler::new(OutsideOptions::default());
    let mut sink = Sink::new();
    let mut first_issue: Option<(u32, TargetIssue)> = None;
    *text += &format!("\ntarget {name}:\n");
    for pid in targets.refresh().started {
        match sampler.add(pid, 0, &mut sink) {
            Ok(_) => {
                if let Some(process) = sink.processes().last() {
                    *text += &format!(
                        "ok      {pid} {} ({:?} {})\n",
                        clean(&process.title),
                        process.language,
                        clean(&process.version)
                    );
                }
            }
            Err(issue) => {
                let failure = of_issue(pid, &issue);
                let (message, fix) = failure.words();
                *text += &format!("missing {pid} {message}\n");
                if let Some(fix) = fix {
                    *text += &format!("        fix: {fix}\n");
                }
                first_issue.get_or_insert((pid, issue));
            }
        }
    }
    match first_issue {
        Some((pid, issue)) if sampler.pids().is_empty() => Err(of_issue(pid, &issue)),
        None if sampler.pids().is_empty() => Err(Failure::new(failure::NO_TARGET, "the target has ended")),
        _ => Ok(()),
    }
}

fn machine() -> Vec<Line> {
    let root = status_value(std::process::id(), "Uid")
        .is_some_and(|uids| uids.split_whitespace().nth(1) == Some("0"));
    let slip = "\"$(command -v slip)\"";
    let ptrace = has(CAP_SYS_PTRACE);
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim();
    let mut lines = vec![Line {
        works: ptrace,
        what: "processes of other users",
        state: if ptrace { "CAP_SYS_PTRACE".to_owned() } else { "no CAP_SYS_PTRACE".to_owned() },
        fix: (!ptrace).then(|| format!("sudo setcap cap_sys_ptrace+ep {slip}   (or run as root)")),
    }];
    let siblings = ptrace || root || matches!(scope, "" | "0");
    lines.push(Line {
        works: siblings,
        what: "processes of the same user",
        state: if scope.is_empty() {
            "no Yama restriction".to_owned()
        } else {
            format!("kernel.yama.ptrace_scope = {scope}")
        },
        fix: (!siblings).then(|| "sudo sysctl kernel.yama.ptrace_scope=0".to_owned()),
    });
    let map_files = has(CAP_CHECKPOINT_RESTORE) || has(CAP_SYS_ADMIN);
    lines.push(Line {
        works: map_files,
        what: "replaced libraries",
        state: if map_files {
            "/proc/PID/map_files".to_owned()
        } else {
            "libpython or libphp replaced by an upgrade cannot be read; programs can".to_owned()
        },
        fix: (!map_files).then(|| format!("sudo setcap cap_sys_ptrace,cap_checkpoint_restore+ep {slip}")),
    });
    let syscall = fs::read("/proc/self/syscall").is_ok();
    lines.push(Line {
        works: true,
        what: "running or waiting",
        state: if syscall { "/proc/PID/syscall".to_owned() } else { "/proc/PID/stat (slower)".to_owned() },
        fix: None,
    });
    lines
}

fn has(capability: u32) -> bool {
    status_value(std::process::id(), "CapEff")
        .and_then(|text| u64::from_str_radix(&text, 16).ok())
        .is_some_and(|set| set >> capability & 1 == 1)
}
