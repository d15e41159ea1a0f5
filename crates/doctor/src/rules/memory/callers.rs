//! Who calls for memory, in programs without an interpreter.

use std::cmp::Reverse;
use std::collections::HashMap;

use slip_model::{MemoryCall, MemoryCalls, NativeFrame};

use crate::case::Case;
use crate::{Statement, Unit, Value, tenths};

/// Callers that are named, at most.
const MAX_CALLERS: usize = 5;

/// A caller with less of the time, in tenths of a per cent, is not named.
const MIN_SHARE: u64 = 10;

/// Functions of a way that are named, at most.
const MAX_WAY: usize = 8;

/// In a run without operations, so many mappings are no set-up.
const MIN_MAPS: u64 = 100;

/// In hundredths: at least every other operation maps.
const MIN_RATE: u64 = 50;

/// So much of what was mapped is given back, in tenths of a per cent, where nothing is kept.
const MIN_GIVEN_BACK: u64 = 950;

/// Libraries that call on behalf of others.
const RUNTIMES: [&str; 13] = [
    "libc.so",
    "libc-",
    "libc++",
    "ld-linux",
    "ld-musl",
    "libpthread",
    "libstdc++",
    "libgcc_s",
    "libm.so",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libslipmalloc",
];

/// And functions, also where they are linked into the program: without the underscores in front.
const WRAPPERS: [&str; 34] = [
    "mmap",
    "mmap64",
    "munmap",
    "brk",
    "sbrk",
    "madvise",
    "mremap",
    "mprotect",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "int_malloc",
    "int_free",
    "int_realloc",
    "int_memalign",
    "sysmalloc",
    "sysmalloc_mmap",
    "systrim",
    "munmap_chunk",
    "mremap_chunk",
    "cfree",
    "memset",
    "memcpy",
    "memmove",
    "operator new",
    "operator new[]",
    "operator delete",
];

/// A function, and how much of one kind of call is its.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller<'a> {
    pub(super) call: MemoryCall,
    frame: &'a NativeFrame,
    /// All functions of the site with most time.
    way: &'a [NativeFrame],
    is_cut: bool,
    way_ns: u64,
    calls: u64,
    pub(super) ns: u64,
}

/// Those of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Callers<'a> {
    memory: &'a MemoryCalls,
    /// Those with most time first.
    callers: Vec<Caller<'a>>,
}

impl<'a> Callers<'a> {
    /// Those of a run; `None` if nobody has seen them.
    pub(super) fn of(case: &Case<'a>) -> Option<Self> {
        let memory = case.budget.memory.as_ref()?;
        if case.unit == Unit::Request || memory.ns() == 0 {
            return None;
        }
        let mut callers: HashMap<(MemoryCall, &NativeFrame), Caller<'a>> = HashMap::new();
        for site in &memory.sites {
            let Some(frame) = named(&site.frames) else { continue };
            let (way, is_cut, ns) = (&*site.frames, site.is_cut, site.ns);
            let new = Caller { call: site.call, frame, way, is_cut, way_ns: ns, calls: 0, ns: 0 };
            let caller = callers.entry((site.call, frame)).or_insert(new);
            if ns > caller.way_ns {
                (caller.way, caller.is_cut, caller.way_ns) = (way, is_cut, ns);
            }
            caller.calls = caller.calls.saturating_add(site.calls);
            caller.ns = caller.ns.saturating_add(ns);
        }
        let mut callers: Vec<Caller<'a>> = callers.into_values().collect();
        callers.sort_by_key(|caller| (Reverse(caller.ns), caller.call, caller.frame));
        (!callers.is_empty()).then_some(Self { memory, callers })
    }

    /// The time of all, in calls and faults.
    pub(super) fn ns(&self) -> u64 {
        self.memory.ns()
    }

    /// That of calls.
    pub(super) fn calls_ns(&self) -> u64 {
        let faults = self.memory.sums.iter().filter(|sum| sum.call == MemoryCall::Fault);
        self.ns().saturating_sub(faults.fold(0, |ns, sum| ns.saturating_add(sum.ns)))
    }

    /// Who maps what is given back again at once, if the counters say that this is what happens.
    fn keeps_nothing(&self, case: &Case<'_>) -> Option<&Caller<'a>> {
        let (maps, unmaps) = (self.memory.calls(MemoryCall::Mmap), self.memory.calls(MemoryCall::Munmap));
        let is_often = match case.unit {
            Unit::Run => maps >= MIN_MAPS,
            _ => case.rate(maps) >= MIN_RATE,
        };
        let is_given_back = tenths(unmaps.into(), maps.into()) >= MIN_GIVEN_BACK;
        let maps = self.callers.iter().find(|caller| caller.call == MemoryCall::Mmap);
        maps.filter(|_| is_often && is_given_back)
    }

    pub(super) fn evidence(&self, case: &Case<'_>) -> Vec<Statement> {
        let ns = self.ns();
        let mut statements = vec![
            Statement::new(
                "{calls} of that in calls that get memory and give it back, {faults} in page faults",
            )
            .by("page_fault_user, sys_enter_mmap, sys_enter_munmap")
            .with("calls", Value::Tenths(tenths(self.calls_ns().into(), ns.into())))
            .with("faults", Value::Tenths(tenths(ns.saturating_sub(self.calls_ns()).into(), ns.into()))),
        ];
        let maps = self.memory.calls(MemoryCall::Mmap);
        if maps > 0 {
            let text = match (self.keeps_nothing(case).is_some(), case.unit) {
                (true, Unit::Run) => {
                    "a {unit} maps {maps} times and unmaps {unmaps} times: nothing is kept from one time to the next; if the program has a cache for this, it is off, or never reached"
                }
                (true, _) => {
                    "each {unit} maps {maps} times and unmaps {unmaps} times: nothing is kept from one to the next; if the program has a cache for this, it is off, or never reached"
                }
                (false, _) => "each {unit} maps {maps} times and unmaps {unmaps} times",
            };
            statements.push(
                Statement::new(text)
                    .by("sys_enter_mmap, sys_enter_munmap")
                    .with("unit", Value::Word(case.unit.name()))
                    .with("maps", Value::Hundredths(case.rate(maps)))
                    .with("unmaps", Value::Hundredths(case.rate(self.memory.calls(MemoryCall::Munmap)))),
            );
        }
        let share = |caller: &Caller<'_>| tenths(caller.ns.into(), ns.into());
        let callers = self.callers.iter().take(MAX_CALLERS).filter(|caller| share(caller) >= MIN_SHARE);
        statements.extend(callers.map(|caller| {
            Statement::new("{call} by {function}: {share} of that time, {rate} for each {unit}; {way}")
                .by("stacks")
                .with("call", Value::Word(caller.call.name()))
                .with("function", Value::Name(label(caller.frame)))
                .with("share", Value::Tenths(share(caller)))
                .with("rate", Value::Hundredths(case.rate(caller.calls)))
                .with("unit", Value::Word(case.unit.name()))
                .with("way", Value::Name(way(caller)))
        }));
        let known = self.callers.iter().fold(0, |ns: u64, caller| ns.saturating_add(caller.ns));
        statements.push(
            Statement::new("who calls is known of {known} of that time, by {stacks} stacks")
                .by("stacks")
                .with("known", Value::Tenths(tenths(known.into(), ns.into())))
                .with("stacks", Value::Count(self.memory.stacks)),
        );
        if self.memory.lost > 0 {
            statements.push(
                Statement::new("{lost} more stacks were lost, because there was no room for them")
                    .by("stacks")
                    .with("lost", Value::Count(self.memory.lost)),
            );
        }
        statements
    }

    /// What is to be done about what keeps nothing.
    pub(super) fn fix(&self, case: &Case<'_>) -> Option<Statement> {
        let caller = self.keeps_nothing(case)?;
        Some(
            Statement::new("{function} asks for a mapping each time: switch on the program's cache in front of it, if it has one, or have it keep blocks and use them again")
                .with("function", Value::Name(label(caller.frame))),
        )
    }
}

/// Who is meant: the innermost function that does not call on behalf of others, or if there is none, the innermost one.
fn named(frames: &[NativeFrame]) -> Option<&NativeFrame> {
    frames.iter().find(|frame| !calls_for_others(frame)).or_else(|| frames.first())
}

fn calls_for_others(frame: &NativeFrame) -> bool {
    let name = frame.function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    RUNTIMES.iter().any(|runtime| frame.module.starts_with(runtime)) || WRAPPERS.contains(&name)
}

/// `block_take (table)`
fn label(frame: &NativeFrame) -> String {
    match (&*frame.function, &*frame.module) {
        (function, "") if !function.is_empty() => function.to_owned(),
        ("", _) => short(frame).to_owned(),
        (function, module) => format!("{function} ({module})"),
    }
}

/// `block_take`
fn short(frame: &NativeFrame) -> &str {
    match (&*frame.function, &*frame.module) {
        ("", "") => "code of no file",
        ("", module) => module,
        (function, _) => function,
    }
}

/// `munmap < block_give < table_close < main`
fn way(caller: &Caller<'_>) -> String {
    let main = caller.way.iter().position(|frame| frame.function == "main");
    let frames = main.and_then(|main| caller.way.get(..=main)).unwrap_or(caller.way);
    let mut names: Vec<&str> = frames.iter().map(short).collect();
    names.dedup();
    let is_cut = names.len() > MAX_WAY || caller.is_cut && main.is_none();
    names.truncate(MAX_WAY);
    let mut way = names.join(" < ");
    if is_cut {
        way.push_str(" < ...");
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: &str) -> NativeFrame {
        NativeFrame { function: function.into(), module: module.into() }
    }

    #[test]
    fn who_is_meant_does_not_call_for_others() {
        let frames = [
            frame("__mmap", "libc.so.6"),
            frame("", "libc.so.6"),
            frame("malloc", "libc.so.6"),
            frame("operator new", "libstdc++.so.6"),
            frame("parse_line", "words"),
            frame("main", "words"),
        ];
        assert_eq!(named(&frames), Some(&frames[4]));
        // All in one file.
        let linked = [frame("__GI___munmap", "words"), frame("__libc_free", "words"), frame("drop", "words")];
        assert_eq!(named(&linked), Some(&linked[2]));
        assert_eq!((named(&frames[..4]), named(&[])), (Some(&frames[0]), None));
    }

    #[test]
    fn a_way_goes_to_main_and_is_not_long() {
        let frames: Vec<NativeFrame> = ["munmap", "", "", "give", "main", "__libc_start_main"]
            .into_iter()
            .map(|function| frame(function, "libc.so.6"))
            .collect();
        let caller = |way| Caller {
            call: MemoryCall::Munmap,
            frame: &frames[3],
            way,
            is_cut: true,
            way_ns: 0,
            calls: 0,
            ns: 0,
        };
        assert_eq!(way(&caller(&frames)), "munmap < libc.so.6 < give < main");
        assert_eq!(way(&caller(&frames[..4])), "munmap < libc.so.6 < give < ...");
        let many: Vec<NativeFrame> = (0..20).map(|at| frame(&format!("f{at}"), "")).collect();
        assert_eq!(way(&caller(&many)), "f0 < f1 < f2 < f3 < f4 < f5 < f6 < f7 < ...");
        assert_eq!(label(&frame("", "")), "code of no file");
    }
}
