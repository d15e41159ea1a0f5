//! `slip malloc`: what processes that use `libslipmalloc.so` have allocated, and why others do not use it.

use std::fmt::Write as _;

use serde_json::{Value, json};
use slip_record::{
    MallocClass, MallocPage, MallocUse, NoMalloc, NotPreloadable, TargetIssue, TargetSet, malloc_use,
};
use slip_remote::process_stat;
use slip_report::{bytes, clean, clean_json};

use crate::args::{MallocCheckOptions, MallocFormatName, MallocStatsOptions, TargetOptions};
use crate::failure::{self, Failure, of_issue};
use crate::record::target_of;

/// A process and how it stands with the allocator.
struct Process {
    pid: u32,
    name: String,
    found: MallocUse,
}

/// Prints the counters of all that use it.
pub(crate) fn stats(options: &MallocStatsOptions) -> Result<(), Failure> {
    let processes = look(&options.target)?;
    let pages: Vec<(&Process, &MallocPage)> = processes
        .iter()
        .filter_map(|process| match &process.found {
            MallocUse::InEffect(page) => Some((process, &**page)),
            _ => None,
        })
        .collect();
    if pages.is_empty() {
        return Err(processes[0].failure());
    }
    let text = match options.format {
        MallocFormatName::Table => {
            pages.iter().map(|(process, page)| process.title() + &table(page)).collect::<Vec<_>>().join("\n")
        }
        MallocFormatName::Json => {
            let list: Vec<Value> = pages.iter().map(|(process, page)| process.json(page)).collect();
            let document = json!({
                "schema": "slip.malloc/1",
                "processes": list,
                "processes_without": processes.len() - pages.len(),
            });
            clean_json(&format!("{document:#}\n")).into_owned()
        }
    };
    crate::print(text.as_bytes())
}

/// Says of each whether it uses it; a failure if one does not.
pub(crate) fn check(options: &MallocCheckOptions) -> Result<(), Failure> {
    let processes = look(&options.target)?;
    let mut text = String::new();
    let mut first = None;
    for process in &processes {
        if let MallocUse::InEffect(page) = &process.found {
            let _ = writeln!(
                text,
                "ok      {} {}: libslipmalloc is in use: {} allocated, {} exchanges of magazines, {} large blocks",
                process.pid,
                clean(&process.name),
                bytes(allocated(page)),
                page.sum(MallocClass::exchanges),
                page.large_taken,
            );
        } else {
            let failure = process.failure();
            if processes.len() > 1 {
                let _ = writeln!(text, "missing {}", failure.words().0);
            }
            first.get_or_insert(failure);
        }
    }
    crate::print(text.as_bytes())?;
    first.map_or(Ok(()), Err)
}

/// All processes of the target that still run.
fn look(target: &TargetOptions) -> Result<Vec<Process>, Failure> {
    let (target, _) = target_of(target, None)?;
    let mut processes = Vec::new();
    for pid in TargetSet::find(target)?.refresh().started {
        match malloc_use(pid) {
            Ok(found) => {
                let name = process_stat(pid).map(|stat| stat.comm).unwrap_or_default();
                processes.push(Process { pid, name, found });
            }
            // It may end at any moment.
            Err(TargetIssue::NotFound) => {}
            Err(TargetIssue::NotAnInterpreter { program }) => {
                let message = format!("process {pid} (`{program}`) has no memory of its own");
                return Err(Failure::new(failure::UNSUPPORTED, message));
            }
            Err(issue) => return Err(of_issue(pid, &issue)),
        }
    }
    if processes.is_empty() {
        return Err(Failure::new(failure::NO_TARGET, "the target has ended"));
    }
    Ok(processes)
}

impl Process {
    fn title(&self) -> String {
        format!("process {} ({})\n", self.pid, clean(&self.name))
    }

    /// Why there is nothing to be said of its allocator.
    fn failure(&self) -> Failure {
        let reason = match &self.found {
            MallocUse::Not(reason) => reason,
            MallocUse::OtherVersion(version) => {
                let message = format!(
                    "process {} ({}) uses a libslipmalloc that counts in another way (version {version})",
                    self.pid, self.name
                );
                return Failure::new(failure::UNSUPPORTED, message).hint(
                    "use the slip that came with it, or restart the process with the library of this one",
                );
            }
            MallocUse::InEffect(_) => return Failure::silent(0),
        };
        let (why, hint) = words_of(reason);
        let message = format!("process {} ({}) does not use libslipmalloc: {why}", self.pid, self.name);
        Failure::new(failure::NOT_IN_USE, message).hint(hint)
    }

    fn json(&self, page: &MallocPage) -> Value {
        let class = |class: &MallocClass| {
            json!({
                "block_bytes": class.block_bytes,
                "slabs": class.slabs,
                "blocks": class.blocks(),
                "bytes": class.bytes(),
                "depot_magazines": class.full_magazines,
                "depot_blocks": class.magazine_blocks,
                "refills_from_depot": class.refills_hit,
                "refills_from_slabs": class.refills_missed,
                "returns_to_depot": class.returns_kept,
                "returns_to_slabs": class.returns_emptied,
            })
        };
        json!({
            "pid": self.pid,
            "name": self.name,
            "secure": page.is_secure,
            "debug": page.is_debug,
            "huge_pages": page.huge_pages,
            "forks": page.forks,
            "small_bytes": page.sum(MallocClass::bytes),
            "small_blocks": page.sum(MallocClass::blocks),
            "slab_bytes": page.sum(MallocClass::slab_bytes),
            "large_bytes": page.large_bytes(),
            "large_blocks": page.large_blocks(),
            "large_taken": page.large_taken,
            "kept_bytes": page.kept_bytes,
            "purged_bytes": page.purged_bytes,
            "purges": page.purges,
            "purges_refused": page.purges_refused,
            "reused_bytes": page.reused_bytes,
            "faults_avoided_at_most": page.faults_avoided(),
            "usable_bytes": page.usable_bytes,
            "region_bytes": page.region_bytes,
            "wanted_bytes": page.wanted_bytes,
            "huge_bytes": page.huge_bytes,
            "bookkeeping_bytes": page.arena_bytes,
            "caches": page.caches,
            "caches_lost": page.caches_lost,
            "decay_ms": page.decay_ms,
            "decay_turns": page.decay_turns,
            "magazines_decayed": page.magazines_decayed,
            "direct_blocks": page.direct_blocks,
            "second_tries": page.second_tries,
            "failures": page.failures,
            "guarded_taken": page.guarded_taken,
            "unguarded_taken": page.unguarded_taken,
            "classes": page.used_classes().map(class).collect::<Vec<_>>(),
        })
    }
}

/// Bytes of blocks.
fn allocated(page: &MallocPage) -> u64 {
    page.sum(MallocClass::bytes).saturating_add(page.large_bytes())
}

/// Why, and what the user can do.
pub(crate) fn words_of(reason: &NoMalloc) -> (String, String) {
    match reason {
        NoMalloc::OtherMalloc { others } if others.is_empty() => (
            "it is mapped, but nothing was taken from it: the program has a malloc of its own, or took no block yet".to_owned(),
            "build the program without its own malloc (redis: `make MALLOC=libc`)".to_owned(),
        ),
        NoMalloc::OtherMalloc { others } => (
            format!("it is mapped, but nothing was taken from it: {} comes first", others.join(", ")),
            "remove that one, or name libslipmalloc.so before it in LD_PRELOAD".to_owned(),
        ),
        NoMalloc::NotPreloadable(obstacle) => words_of_obstacle(obstacle),
        NoMalloc::NoFile { path } => (
            format!("LD_PRELOAD names `{path}`, and the process sees no such file"),
            "in a container or a chroot the library must be there, and readable by its user".to_owned(),
        ),
        NoMalloc::NotLoaded { path } => (
            format!("LD_PRELOAD names `{path}`, and the loader did not take it"),
            "it says why at start, on standard error; a path that is no path from `/` is looked for where libraries are".to_owned(),
        ),
        NoMalloc::NotAsked => (
            "it was not preloaded".to_owned(),
            "start it with `slip run --malloc -- COMMAND`, or with LD_PRELOAD in its environment (systemd: `Environment=LD_PRELOAD=…`)".to_owned(),
        ),
    }
}

/// Why nothing can be preloaded into a program, and what the user can do.
pub(crate) fn words_of_obstacle(obstacle: &NotPreloadable) -> (String, String) {
    let (why, hint) = match obstacle {
        NotPreloadable::Static => (
            "the program is statically linked, so no loader reads LD_PRELOAD".to_owned(),
            "build it without `-static`",
        ),
        NotPreloadable::Foreign => (
            "the program is not for x86-64".to_owned(),
            "the library is for 64-bit programs of x86-64 alone",
        ),
        NotPreloadable::OtherLibrary { loader } => (
            format!("the program's loader is `{loader}`: its C library is not glibc"),
            "the library needs glibc; run the program in an image that has it (Debian in the place of Alpine)",
        ),
        NotPreloadable::MoreRights => (
            "the program gets rights that who starts it has not (set-user-ID or capabilities), so the loader ignores LD_PRELOAD".to_owned(),
            "start it as the user whose rights it gets",
        ),
    };
    (why, hint.to_owned())
}

fn table(page: &MallocPage) -> String {
    let mut text = String::new();
    let mut line = |name: &str, amount: u64, more: String| {
        let _ = writeln!(text, "  {name:<22}{:>10}  {more}", bytes(amount));
    };
    let small = page.sum(MallocClass::bytes);
    let of_slabs = page.sum(MallocClass::slab_bytes);
    line(
        "blocks up to 32 KiB",
        small,
        format!(
            "{} blocks, with the program or in caches of threads (now {})",
            page.sum(MallocClass::blocks),
            page.caches
        ),
    );
    line(
        "larger blocks",
        page.large_bytes(),
        format!("{} blocks; {} since start", page.large_blocks(), page.large_taken),
    );
    line("free in slabs", of_slabs.saturating_sub(small), format!("of {} in slabs", bytes(of_slabs)));
    line("free, kept resident", page.kept_bytes, decay(page));
    line(
        "taken again",
        page.reused_bytes,
        format!("while resident: up to {} page faults avoided", page.faults_avoided()),
    );
    line("given back", page.purged_bytes, format!("to the kernel, by {} calls", page.purges));
    line("bookkeeping", page.arena_bytes, "magazines and caches of threads".to_owned());
    line(
        "usable",
        page.usable_bytes,
        format!(
            "of {} of address space; {} may be huge pages",
            bytes(page.region_bytes),
            bytes(page.huge_bytes)
        ),
    );
    let hit = page.sum(|class| class.refills_hit);
    let missed = page.sum(|class| class.refills_missed);
    let share = 100.0 * hit as f64 / hit.saturating_add(missed).max(1) as f64;
    let _ = writeln!(
        text,
        "  magazines             {:>10}  refills, {share:.1} % by a full one of the depot, the others from slabs",
        hit.saturating_add(missed)
    );
    let _ = writeln!(
        text,
        "                        {:>10}  returns, {} of them emptied into slabs; by decay {} more (turns: {})",
        page.sum(|class| class.returns_kept.saturating_add(class.returns_emptied)),
        page.sum(|class| class.returns_emptied),
        page.magazines_decayed,
        page.decay_turns
    );
    let fallbacks = fallbacks(page);
    let _ = writeln!(
        text,
        "  fallbacks               {}",
        if fallbacks.is_empty() { "none".to_owned() } else { fallbacks.join("; ") }
    );
    let build = match (page.is_debug, page.is_secure) {
        (true, _) => format!("the debug build, {} blocks had a guard page; ", page.guarded_taken),
        (false, true) => "the secure build; ".to_owned(),
        (false, false) => String::new(),
    };
    if !build.is_empty() || page.forks > 0 {
        let _ = writeln!(
            text,
            "  note                    {build}forks since the library was loaded: {}; counts go on from before",
            page.forks
        );
    }
    text += "\n     size      slabs     blocks      bytes    in depot  refills  of these hit  returns\n";
    for class in page.used_classes() {
        let _ = writeln!(
            text,
            "  {:>7} {:>10} {:>10} {:>10}  {:>10} {:>8} {:>13} {:>8}",
            class.block_bytes,
            class.slabs,
            class.blocks(),
            bytes(class.bytes()),
            class.magazine_blocks,
            class.refills_hit.saturating_add(class.refills_missed),
            class.refills_hit,
            class.returns_kept.saturating_add(class.returns_emptied),
        );
    }
    text
}

fn decay(page: &MallocPage) -> String {
    match u64::try_from(page.decay_ms) {
        Ok(ms) => format!("given back {ms} to {} ms after its last use", ms.saturating_mul(2)),
        Err(_) => "for ever (SLIP_MALLOC_DECAY_MS=-1)".to_owned(),
    }
}

/// What did not go the usual way.
fn fallbacks(page: &MallocPage) -> Vec<String> {
    let mut list = Vec::new();
    if page.region_bytes < page.wanted_bytes {
        list.push(format!(
            "{} reserved in the place of {}: address space is limited",
            bytes(page.region_bytes),
            bytes(page.wanted_bytes)
        ));
    }
    let counted = [
        (page.purges_refused, "calls to give memory back refused: it is locked"),
        (page.direct_blocks, "blocks of threads without a cache"),
        (page.caches_lost, "caches of the parent's threads lost by fork"),
        (page.second_tries, "times all that was kept had to be gathered for a block"),
        (page.failures, "times there was no memory"),
        (page.unguarded_taken, "blocks without a guard page: no more mappings, or too large"),
    ];
    list.extend(
        counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_can_be_shown() {
        let class = MallocClass {
            block_bytes: u32::MAX,
            full_magazines: u32::MAX,
            slabs: u64::MAX,
            blocks_out: u64::MAX,
            magazine_blocks: 0,
            refills_hit: u64::MAX,
            refills_missed: u64::MAX,
            returns_kept: u64::MAX,
            returns_emptied: u64::MAX,
        };
        let page = MallocPage {
            decay_ms: i64::MAX,
            reused_bytes: u64::MAX,
            wanted_bytes: 1,
            failures: 3,
            classes: vec![class; 2],
            ..MallocPage::default()
        };
        let text = table(&page);
        assert!(text.contains("3 times there was no memory") && text.contains("0 B reserved"), "{text}");
        assert!(table(&MallocPage::default()).contains("fallbacks               none"));
    }
}
