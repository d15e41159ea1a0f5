//! `slip check`: what works on this machine, what is missing, and the line that fixes it.

use std::fs;

use slip_model::Mode;
use slip_record::{
    KernelSampler, OutsideOptions, OutsideSampler, ProbeError, Sampler, Sink, TargetIssue, TargetSet,
};
use slip_remote::{notes_switches, status_value};
use slip_report::clean;

use crate::args::CheckOptions;
use crate::failure::{self, Failure, of_issue};
use crate::record::target_of;
use crate::sampler::MAX_KERNEL_HZ;

/// Capabilities by their bit in `CapEff`, with what they are needed for.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// This program, for a shell.
const SLIP: &str = "\"$(command -v slip)\"";

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
    let mut lines = machine();
    let (line, kernel) = kernel();
    lines.push(line);
    for line in &lines {
        text +=
            &format!("{} {:<28} {}\n", if line.works { "ok     " } else { "missing" }, line.what, line.state);
        if let Some(fix) = &line.fix {
            text += &format!("        fix: {fix}\n");
        }
    }
    let (mut sampler, what): (Box<dyn Sampler>, _) = match kernel {
        Some(kernel) => (Box::new(kernel), "the kernel copies stacks where threads run or go to wait"),
        None => {
            let outside = OutsideSampler::new(OutsideOptions::default());
            (Box::new(outside), "reads memory with process_vm_readv")
        }
    };
    text += &format!("\nsampler: {} ({what}; nothing is stopped or written)\ncannot see:\n", sampler.name());
    for limit in sampler.cannot_see() {
        text += &format!("  - {limit}\n");
    }
    text += &format!("\nreads: {}\n", slip_record::supported());
    let named = !options.target.pid.is_empty() || options.target.fpm.is_some();
    let result = if named { check_target(options, sampler.as_mut(), &mut text) } else { Ok(()) };
    crate::print(text.as_bytes())?;
    result
}

fn check_target(options: &CheckOptions, sampler: &mut dyn Sampler, text: &mut String) -> Result<(), Failure> {
    let (target, name) = target_of(&options.target, None)?;
    let mut targets = TargetSet::find(target)?;
    let mut sink = Sink::new();
    let mut first_issue: Option<(u32, TargetIssue)> = None;
    *text += &format!("\ntarget {name}:\n");
    for pid in targets.refresh().started {
        match sampler.add(pid, 0, &mut sink) {
            Ok(()) => {
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
        Some((pid, issue)) if sampler.is_empty() => Err(of_issue(pid, &issue)),
        None if sampler.is_empty() => Err(Failure::new(failure::NO_TARGET, "the target has ended")),
        _ => Ok(()),
    }
}

fn machine() -> Vec<Line> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let mut lines = processes(has(CAP_SYS_PTRACE), scope.trim());
    let map_files = has(CAP_CHECKPOINT_RESTORE) || has(CAP_SYS_ADMIN);
    lines.push(Line {
        works: map_files,
        what: "replaced libraries",
        state: if map_files {
            "/proc/PID/map_files".to_owned()
        } else {
            "libpython or libphp replaced by an upgrade cannot be read; programs can".to_owned()
        },
        fix: (!map_files).then(|| format!("sudo setcap cap_sys_ptrace,cap_checkpoint_restore+ep {SLIP}")),
    });
    let notes_switches = notes_switches();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let forbids = paranoid.trim().parse().is_ok_and(|level: i32| level > 2);
    lines.push(Line {
        works: notes_switches,
        what: "who has run",
        state: match notes_switches {
            true => "perf_event_open: no system call for a thread that rests".to_owned(),
            false => "/proc/PID/schedstat: a system call for each thread and look".to_owned(),
        },
        fix: (!notes_switches && forbids).then(|| "sudo sysctl kernel.perf_event_paranoid=2".to_owned()),
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

/// Whether stacks can be copied in the kernel, and the sampler if they can of waits as well.
fn kernel() -> (Line, Option<KernelSampler>) {
    // Its clocks go off once a second: nothing is watched, so all that this takes is loading the program.
    let start = |mode| {
        let options = OutsideOptions { mode, ..OutsideOptions::default() };
        KernelSampler::start(options, 1_000_000_000)
    };
    let what = "stacks copied in the kernel";
    if let Ok(sampler) = start(Mode::Wall) {
        let state = format!("eBPF: each wait, and up to {MAX_KERNEL_HZ} Hz what runs");
        return (Line { works: true, what, state, fix: None }, Some(sampler));
    }
    let (works, state, fix) = match start(Mode::Cpu) {
        Ok(_) => (true, "eBPF: only record --mode cpu; its waits need Linux 5.15".to_owned(), None),
        Err(error) => {
            let fix = match error {
                ProbeError::Denied(_) => {
                    Some(format!("sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep {SLIP}"))
                }
                _ => None,
            };
            // What the kernel's verifier says is long.
            (false, error.to_string().lines().next().unwrap_or_default().to_owned(), fix)
        }
    };
    (Line { works, what, state, fix }, None)
}

/// Whose processes may be read, with this capability and this `kernel.yama.ptrace_scope` (empty: a kernel without Yama).
fn processes(ptrace: bool, scope: &str) -> Vec<Line> {
    // Yama's 1 and 2 let pass who has the capability, 3 nobody until the next boot.
    let closed = scope == "3";
    let others = ptrace && !closed;
    let same_user = others || matches!(scope, "" | "0");
    let fix = |works: bool, remedy: String| {
        let reboot = "boot with kernel.yama.ptrace_scope = 1, see /etc/sysctl.d: 3 cannot be lowered";
        (!works).then(|| if closed { reboot.to_owned() } else { remedy })
    };
    let yama = if scope.is_empty() {
        "no Yama restriction".to_owned()
    } else {
        format!("kernel.yama.ptrace_scope = {scope}")
    };
    vec![
        Line {
            works: others,
            what: "processes of other users",
            state: match (ptrace, closed) {
                (true, true) => yama.clone(),
                (true, false) => "CAP_SYS_PTRACE".to_owned(),
                (false, _) => "no CAP_SYS_PTRACE".to_owned(),
            },
            fix: fix(others, format!("sudo setcap cap_sys_ptrace+ep {SLIP}   (or run as root)")),
        },
        Line {
            works: same_user,
            what: "processes of the same user",
            state: yama,
            fix: fix(same_user, "sudo sysctl kernel.yama.ptrace_scope=0".to_owned()),
        },
    ]
}

fn has(capability: u32) -> bool {
    status_value(std::process::id(), "CapEff")
        .and_then(|text| u64::from_str_radix(&text, 16).ok())
        .is_some_and(|set| set >> capability & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yama_lets_pass_who_has_the_capability_but_nobody_if_it_is_closed() {
        // Capability, scope, other users, same user, words of the fix of the latter.
        let cases = [
            (true, "", true, true, ""),
            (true, "0", true, true, ""),
            (true, "1", true, true, ""),
            (true, "2", true, true, ""),
            (true, "3", false, false, "boot"),
            (false, "", false, true, ""),
            (false, "0", false, true, ""),
            // Root in a container has no capability as a rule.
            (false, "1", false, false, "sysctl"),
            (false, "2", false, false, "sysctl"),
            (false, "3", false, false, "boot"),
        ];
        for (ptrace, scope, others, same_user, fix) in cases {
            let lines = processes(ptrace, scope);
            assert_eq!((lines[0].works, lines[1].works), (others, same_user), "{ptrace} {scope}");
            for line in &lines {
                assert_eq!(line.works, line.fix.is_none(), "{ptrace} {scope}: {}", line.what);
            }
            assert!(lines[1].fix.clone().unwrap_or_default().contains(fix), "{ptrace} {scope}");
        }
    }
}
