//! MEM004: memory that is mapped and given back again and again.

mod callers;

use std::collections::BTreeMap;

use slip_model::WaitReason;

use self::callers::Callers;
use crate::case::{Case, cut};
use crate::sites::{MIN_SAMPLES, Sites, is_in_kernel};
use crate::{Confidence, Cost, Finding, Gain, Line, MEM004, Statement, Unit, Value, Verdict, tenths};

/// Less of a unit, in tenths of a per cent, is not told: memory has to be touched for the first time by anybody, and PHP gives its heap back after
/// each request, which takes a short one up to 6 % where nothing is wrong.
const MIN_TENTHS: u64 = 80;

/// Of x86-64.
const PAGE_BYTES: u64 = 4_096;

/// With so large a share of it, in tenths of a per cent, in such calls, memory is given back and not only got: to map what a program grows by
/// takes next to nothing beside touching it.
const MIN_CALLS: u64 = 20;

/// The kernel's functions for calls that get memory and give it back.
const CALLS: [&str; 12] = [
    "__x64_sys_mmap*",
    "ksys_mmap_pgoff",
    "vm_mmap_pgoff",
    "do_mmap",
    "__x64_sys_munmap*",
    "__vm_munmap",
    "__x64_sys_brk*",
    "__do_sys_brk",
    "__x64_sys_madvise*",
    "do_madvise*",
    "__x64_sys_mremap*",
    "__x64_sys_mprotect*",
];

/// And for pages that are touched.
const FAULTS: [&str; 5] =
    ["asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault", "__handle_mm_fault"];

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    if case.table.is_by_looks() {
        return Verdict::TooLittle(Statement::new(
            "the kernel's work for memory is not told from code by looks at /proc; as root the kernel may tell",
        ));
    }
    let ns = case.line_ns(Line::Memory);
    let share = case.tenths(ns);
    let of_memory = |text| {
        Statement::new(text)
            .by("page_fault_user, sys_enter_mmap, sys_enter_munmap")
            .with("time", Value::Ns(ns))
            .with("share", Value::Tenths(share))
            .with("unit", Value::Word(case.unit.name()))
    };
    if share < MIN_TENTHS {
        return Verdict::Quiet(of_memory("{time} of each {unit}, {share}"));
    }
    let interner = &case.recording.interner;
    let runs = |reason: Option<WaitReason>| matches!(reason, None | Some(WaitReason::Cpu));
    let of = |names: &[&str]| {
        Sites::of(case.recording, |look| {
            runs(look.reason) && is_in_kernel(interner, look.sample.stack, names)
        })
    };
    let (calls, faults) = (of(&CALLS), of(&FAULTS));
    let both = Sites::of(case.recording, |look| {
        runs(look.reason)
            && (is_in_kernel(interner, look.sample.stack, &CALLS)
                || is_in_kernel(interner, look.sample.stack, &FAULTS))
    });
    let mut evidence = vec![of_memory(
        "{time} of each {unit}, {share}, in the kernel for memory: mmap, munmap, brk, madvise, and page faults",
    )];
    let faulted = Faults::of(case);
    evidence.extend(faulted.statements(case));
    let callers = Callers::of(case);
    let is_told = callers.is_some() || both.count >= MIN_SAMPLES;
    let (calls_ns, all_ns) =
        callers.as_ref().map_or((calls.ns, both.ns), |callers| (callers.calls_ns(), callers.ns()));
    if let Some(callers) = &callers {
        evidence.extend(callers.evidence(case));
    } else if is_told {
        let called = tenths(calls.ns.into(), both.ns.into());
        evidence.push(
            Statement::new("{calls} of that in calls that get memory and give it back, {faults} in page faults, by {samples} samples")
                .by("samples")
                .with("calls", Value::Tenths(called))
                .with("faults", Value::Tenths(tenths(faults.ns.into(), both.ns.into())))
                .with("samples", Value::Count(both.count)),
        );
        evidence.extend(both.statements(case.recording, "{function}: {share} of {samples} samples there"));
    }
    let mut ruled_out = vec![
        Statement::new("files that are read into memory: {disk}, and not in this")
            .by("page_fault_user")
            .with("disk", Value::Ns(case.line_ns(Line::Disk))),
    ];
    let run = case
        .table
        .run
        .as_ref()
        .filter(|run| case.unit != Unit::Request && run.startup_ns() + run.exit_ns() > 0);
    if let Some(run) = run {
        let of = |lines: &[crate::LineTime]| {
            cut(lines.iter().filter(|row| row.line == Line::Memory).map(|row| row.ns).sum::<u128>())
        };
        ruled_out.push(
            Statement::new("start-up and exit: their {startup} and {exit} for memory are not in this")
                .by("sched_process_exec, exit_group")
                .with("startup", Value::Ns(of(&run.startup)))
                .with("exit", Value::Ns(of(&run.exit))),
        );
    }
    let mut fixes: Vec<Statement> = callers.iter().filter_map(|callers| callers.fix(case)).collect();
    fixes.push(Statement::new(
        "keep memory in the place of giving it back: use buffers again; glibc: MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ larger than what is asked for, or an allocator that keeps its pages",
    ));
    if !is_told {
        fixes.push(Statement::new("who asks for it is not in the recording, which has no samples there: `perf trace -e mmap,munmap --call-graph=dwarf` tells"));
    }
    Verdict::Found(vec![Finding {
        rule: &MEM004,
        cause: match (is_told, tenths(calls_ns.into(), all_ns.into()) >= MIN_CALLS) {
            (false, _) => "memory",
            (true, true) => "mapping",
            (true, false) => "faults",
        },
        headline: Statement::new("the kernel gets, clears and takes back memory for {share} of each {unit}")
            .with("share", Value::Tenths(share))
            .with("unit", Value::Word(case.unit.name())),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(share) }),
        evidence,
        ruled_out,
        fixes,
        gain: Some(Gain {
            low: Value::Ns(faulted.again_ns(ns).max(if is_told {
                share_of(ns, calls_ns, all_ns)
            } else {
                0
            })),
            high: Value::Ns(ns),
            basis: Statement::new(
                "memory that is kept is neither mapped nor cleared again; page faults stay for what is touched for the first time",
            ),
        }),
        confidence: if is_told { Confidence::High } else { Confidence::Medium },
    }])
}

/// Page faults of all units, and the calls that map memory or give it back.
struct Faults {
    faults: u64,
    calls: u64,
    /// By how much the processes have grown; `None` if that is not known of all of them.
    grown_bytes: Option<u64>,
}

impl Faults {
    fn of(case: &Case<'_>) -> Self {
        let is_run = case.unit != Unit::Request;
        let looked_at = case.recording.facts.iter().flat_map(|facts| &facts.workers);
        let looked_at: BTreeMap<u32, Option<u64>> =
            looked_at.map(|worker| (worker.pid, worker.grown)).collect();
        let mut found = Self { faults: 0, calls: 0, grown_bytes: None };
        let mut grown: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for worker in case.budget.workers.iter().filter(|worker| worker.is_run == is_run) {
            found.faults = found.faults.saturating_add(worker.faults);
            found.calls = found.calls.saturating_add(worker.memory_calls);
            // One that has ended may have begun with nothing.
            let ended = (worker.most_bytes > 0).then_some(worker.most_bytes);
            let bytes = ended.or_else(|| looked_at.get(&worker.pid).copied().flatten());
            let of_process = grown.entry(worker.pid).or_default();
            *of_process = (*of_process).max(bytes);
        }
        found.grown_bytes =
            grown.into_values().try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
        found
    }

    /// Faults for memory that had been there before: more than the processes grew by.
    fn again(&self) -> Option<u64> {
        Some(self.faults.saturating_sub(self.grown_bytes? / PAGE_BYTES))
    }

    /// Their part of so much time.
    fn again_ns(&self, ns: u64) -> u64 {
        share_of(ns, self.again().unwrap_or_default(), self.faults)
    }

    fn statements(&self, case: &Case<'_>) -> Vec<Statement> {
        if self.faults == 0 {
            return Vec::new();
        }
        let each = Statement::new(
            "{faults} page faults and {calls} calls that map memory or give it back for each {unit}",
        )
        .by("page_fault_user, sys_enter_mmap, sys_enter_munmap")
        .with("faults", Value::Hundredths(case.rate(self.faults)))
        .with("calls", Value::Hundredths(case.rate(self.calls)))
        .with("unit", Value::Word(case.unit.name()));
        let again = self.again().filter(|again| *again > 0).zip(self.grown_bytes).map(|(again, grown)| {
            Statement::new("{share} of these faults are for memory that was there before: the processes grew by {grown} at most")
                .by("VmHWM")
                .with("share", Value::Tenths(tenths(again.into(), self.faults.into())))
                .with("grown", Value::Bytes(grown))
        });
        [each].into_iter().chain(again).collect()
    }
}

/// `of` as `part` is of `all`; 0 of nothing.
fn share_of(of: u64, part: u64, all: u64) -> u64 {
    cut((u128::from(of) * u128::from(part)).checked_div(all.into()).unwrap_or_default()).min(of)
}

#[cfg(test)]
mod tests {
    use slip_model::{
        Frame, FrameKind, MemoryCall, MemoryCalls, MemorySite, MemorySum, NativeFrame, Part, Recording,
        RunBegin, Sample, SampleBlock, State,
    };

    use super::*;
    use crate::support::{assert_quiet, found, of, pool, times};

    const MS: u64 = 1_000_000;

    /// Adds samples in `function`, which has called this function of the kernel.
    fn sample(recording: &mut Recording, count: u64, function: &str, kernel: &str) {
        let interner = &mut recording.interner;
        let (name, file) = (interner.string(function), interner.string("/srv/a.php"));
        let inner = interner.string(kernel);
        let caller = interner.frame(Frame { kind: FrameKind::Php, name, file, line: 3, ..Frame::default() });
        let kernel = interner.frame(Frame { kind: FrameKind::Kernel, name: inner, ..Frame::default() });
        let stack = interner.stack(&[kernel, caller]);
        let mut block = SampleBlock::default();
        (0..count).for_each(|_| block.push(Sample { stack, state: State::ON_CPU, ..Sample::default() }));
        recording.blocks.push(block);
    }

    #[test]
    fn mapping_and_giving_back_is_told_with_who_does_it() {
        let mut recording = pool(200, &[(Part::Code, 10 * MS), (Part::Memory, 10 * MS)]);
        let finding = found(judge, &recording);
        let gain = finding.gain.unwrap();
        assert_eq!((finding.cause, gain.low, gain.high), ("memory", Value::Ns(0), Value::Ns(10 * MS)));
        sample(&mut recording, 30, "load", "__x64_sys_munmap");
        sample(&mut recording, 10, "fill", "asm_exc_page_fault");
        sample(&mut recording, 60, "load", "__x64_sys_read");
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.confidence), ("mapping", Confidence::High));
        assert_eq!(finding.evidence[2].value("function"), Some(&Value::Name("load (/srv/a.php:3)".into())));
        assert_eq!(finding.evidence[2].value("share"), Some(&Value::Tenths(750)));
        assert_eq!(finding.gain.unwrap().low, Value::Ns(7_500_000));
    }

    #[test]
    fn faults_are_avoided_but_for_those_that_a_process_grows_by() {
        let mut recording = pool(200, &[(Part::Code, 10 * MS), (Part::Memory, 10 * MS)]);
        let worker = &mut of(&mut recording).workers[0];
        (worker.faults, worker.memory_calls) = (200 * 64, 200 * 2);
        let finding = found(judge, &recording);
        assert_eq!(finding.evidence[1].value("faults"), Some(&Value::Hundredths(6_400)));
        assert_eq!((finding.evidence.len(), finding.gain.unwrap().low), (2, Value::Ns(0)));
        // A quarter of them is for what the process has in the end.
        of(&mut recording).workers[0].most_bytes = 200 * 16 * PAGE_BYTES;
        let finding = found(judge, &recording);
        assert_eq!(finding.evidence[2].value("share"), Some(&Value::Tenths(750)));
        assert_eq!(finding.gain.unwrap().low, Value::Ns(7_500_000));
    }

    #[test]
    fn start_up_and_exit_of_a_run_are_apart() {
        let mut recording = pool(0, &[]);
        let budget = of(&mut recording);
        let worker = &mut budget.workers[0];
        worker.is_run = true;
        worker.serving = times(&[(Part::Code, 90 * MS), (Part::Memory, 10 * MS)]);
        worker.between = times(&[(Part::Memory, 7 * MS)]);
        worker.after = times(&[(Part::Memory, 40 * MS)]);
        worker.watched_ns = 147 * MS;
        budget.run_begin = Some(RunBegin::Program);
        let finding = found(judge, &recording);
        assert_eq!(finding.ns(), 10 * MS);
        let apart = finding.ruled_out.iter().find(|out| out.text.starts_with("start-up")).unwrap();
        assert_eq!(
            (apart.value("startup"), apart.value("exit")),
            (Some(&Value::Ns(7 * MS)), Some(&Value::Ns(40 * MS)))
        );
        of(&mut recording).workers[0].serving = times(&[(Part::Code, 99 * MS), (Part::Memory, MS)]);
        assert_quiet(judge, &recording);
    }

    /// A run of a native program, half of which is for memory: it maps so often, and unmaps.
    fn native(maps: u64, unmaps: u64) -> Recording {
        let mut recording = pool(0, &[]);
        let budget = of(&mut recording);
        budget.run_begin = Some(RunBegin::Program);
        let worker = &mut budget.workers[0];
        worker.is_run = true;
        worker.serving = times(&[(Part::Code, 50 * MS), (Part::Memory, 50 * MS)]);
        worker.watched_ns = 100 * MS;
        let site = |call, calls, ns, functions: &[&str]| {
            let frame =
                |function: &&str| NativeFrame { function: (*function).into(), module: "words".into() };
            MemorySite { call, frames: functions.iter().map(frame).collect(), is_cut: false, calls, ns }
        };
        let sum = |call, calls, ns| MemorySum { call, calls, ns };
        budget.memory = Some(MemoryCalls {
            sums: vec![
                sum(MemoryCall::Mmap, maps, 30 * MS),
                sum(MemoryCall::Munmap, unmaps, 10 * MS),
                sum(MemoryCall::Fault, 5, 10 * MS),
            ],
            sites: vec![
                site(MemoryCall::Mmap, maps - 1, 25 * MS, &["mmap", "take", "open", "main"]),
                site(MemoryCall::Munmap, unmaps, 10 * MS, &["munmap", "give", "main", "_start"]),
                site(MemoryCall::Mmap, 1, 5 * MS, &["mmap", "take", "main"]),
            ],
            stacks: 7,
            lost: 0,
        });
        recording
    }

    #[test]
    fn a_native_program_that_keeps_nothing_is_told_with_its_callers() {
        let finding = found(judge, &native(200, 200));
        assert_eq!((finding.cause, finding.confidence), ("mapping", Confidence::High));
        let counted = finding.evidence.iter().find(|said| said.text.contains("nothing is kept")).unwrap();
        assert_eq!(counted.value("maps"), Some(&Value::Hundredths(20_000)));
        let callers: Vec<_> = finding.evidence.iter().filter(|said| said.value("way").is_some()).collect();
        let told = |at: usize, name: &str| callers[at].value(name).unwrap().clone();
        assert_eq!(callers.len(), 2);
        assert_eq!([told(0, "call"), told(1, "call")], [Value::Word("mmap"), Value::Word("munmap")]);
        assert_eq!(told(0, "function"), Value::Name("take (words)".into()));
        assert_eq!(told(0, "way"), Value::Name("mmap < take < open < main".into()));
        assert_eq!([told(0, "share"), told(1, "share")], [Value::Tenths(600), Value::Tenths(200)]);
        assert_eq!(told(0, "rate"), Value::Hundredths(20_000));
        let known = finding.evidence.iter().find_map(|said| said.value("known"));
        assert_eq!(known, Some(&Value::Tenths(800)));
        assert!(finding.fixes[0].text.contains("switch on"), "{:?}", finding.fixes);
        assert!(!finding.fixes.iter().any(|fix| fix.text.contains("perf")));
        assert_eq!(finding.gain.unwrap().low, Value::Ns(40 * MS));
    }

    #[test]
    fn what_is_mapped_and_kept_is_no_cache_that_is_off() {
        for (maps, unmaps) in [(200, 100), (90, 90)] {
            let finding = found(judge, &native(maps, unmaps));
            assert!(!finding.statements().any(|said| said.text.contains("nothing is kept")), "{maps}");
            assert!(!finding.fixes[0].text.contains("switch on"));
        }
    }

    #[test]
    fn where_nobody_has_seen_who_calls_that_is_said() {
        let mut recording = native(200, 200);
        of(&mut recording).memory.as_mut().unwrap().sites.clear();
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.confidence), ("memory", Confidence::Medium));
        assert!(finding.fixes.iter().any(|fix| fix.text.contains("perf")));
    }

    #[test]
    fn files_that_are_read_into_memory_are_not() {
        assert_quiet(judge, &pool(200, &[(Part::Code, 10 * MS), (Part::Disk, 10 * MS)]));
    }
}
