//! CFG017: huge pages are asked for, and there are none.

use slip_model::{Facts, HugePagesWish, Recording, WorkerMemory};

use super::asked::{found_or, looked_at, setting};
use crate::{CFG017, Confidence, Finding, Statement, Value, Verdict};

/// A worker with less anonymous memory may have no whole huge page in it.
const MIN_ANONYMOUS: u64 = 8 << 20;

pub(crate) fn judge(recording: &Recording) -> Verdict {
    let facts = match looked_at(recording) {
        Ok(facts) => facts,
        Err(verdict) => return verdict,
    };
    let wish = facts.workers.iter().find_map(|worker| worker.wants_huge_pages);
    let wants_code = facts.php.as_ref().is_some_and(|php| php.is_on("opcache.huge_code_pages"));
    let memory = wish.and_then(|wish| of_memory(facts, wish));
    let code = if wants_code { of_code(facts) } else { None };
    let quiet = if wish.is_none() && !wants_code {
        Statement::new("nothing that is known asks for huge pages; the kernel's setting is {setting}")
            .with("setting", Value::Name(facts.huge_pages.enabled.clone()))
            .by("transparent_hugepage/enabled")
    } else {
        Statement::new("they are asked for, and {bytes} of the workers' memory is in huge pages")
            .with("bytes", Value::Bytes(sum(facts, |worker| worker.anonymous_huge)))
            .by("smaps")
    };
    found_or(memory.into_iter().chain(code).collect(), quiet)
}

fn sum(facts: &Facts, of: impl Fn(&WorkerMemory) -> u64) -> u64 {
    facts.workers.iter().fold(0, |sum, worker| sum.saturating_add(of(worker)))
}

/// Why the kernel gives none, what shows it, and what helps; `None` if it may.
fn refusal(facts: &Facts) -> Option<(&'static str, Statement, Statement)> {
    if facts.huge_pages.enabled == "never" {
        return Some((
            "never",
            Statement::new("the kernel's setting is never").by("transparent_hugepage/enabled"),
            Statement::new(
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or stop asking for them",
            ),
        ));
    }
    let refusing = facts.workers.iter().filter(|worker| worker.refuses_huge_pages).count() as u64;
    (refusing > 0).then(|| {
        (
            "refused",
            Statement::new("{workers} workers have them switched off by prctl(PR_SET_THP_DISABLE)")
                .with("workers", Value::Count(refusing))
                .by("status"),
            Statement::new("have whoever starts the workers not do that: some service managers and container runtimes do"),
        )
    })
}

fn of_memory(facts: &Facts, wish: HugePagesWish) -> Option<Finding> {
    let huge = sum(facts, |worker| worker.anonymous_huge);
    let by_environment = |name| {
        Statement::new("{name} in the environment asks for them")
            .with("name", Value::Word(name))
            .by("environ")
    };
    let asked = match wish {
        HugePagesWish::Zend => by_environment("USE_ZEND_ALLOC_HUGE_PAGES"),
        HugePagesWish::Glibc => by_environment("GLIBC_TUNABLES"),
        HugePagesWish::Madvise => Statement::new(
            "workers ask for them by madvise(MADV_HUGEPAGE), as PHP does with USE_ZEND_ALLOC_HUGE_PAGES=1",
        )
        .by("smaps"),
    };
    let counted = Statement::new("{huge} of {all} anonymous memory of the workers is in huge pages")
        .with("huge", Value::Bytes(huge))
        .with("all", Value::Bytes(sum(facts, |worker| worker.anonymous)))
        .by("smaps");
    if let Some((cause, why, fix)) = refusal(facts) {
        let headline = Statement::new("huge pages are asked for, and the kernel gives none");
        return Some(
            setting(&CFG017, cause, headline, Confidence::High).shown([asked, why, counted]).fixed(fix),
        );
    }
    let is_large =
        |worker: &WorkerMemory| worker.wants_huge_pages.is_some() && worker.anonymous >= MIN_ANONYMOUS;
    (huge == 0 && facts.workers.iter().any(is_large)).then(|| {
        let headline = Statement::new("huge pages are asked for and allowed, and there are none");
        let allowed = Statement::new("the kernel's setting: it is {setting}")
            .with("setting", Value::Name(facts.huge_pages.enabled.clone()))
            .by("transparent_hugepage/enabled");
        setting(&CFG017, "none", headline, Confidence::Low).shown([asked, counted]).not(allowed).fixed(
            Statement::new("look whether there is free memory in one piece (/proc/buddyinfo), and at transparent_hugepage/defrag"),
        )
    })
}

fn of_code(facts: &Facts) -> Option<Finding> {
    if facts.workers.iter().any(|worker| worker.code_huge > 0) {
        return None;
    }
    let asked = Statement::new("opcache.huge_code_pages is on").by("ini_get");
    let counted = Statement::new("none of the workers' code is in huge pages").by("smaps");
    let headline = Statement::new("PHP is to have its code in huge pages, and it is not");
    Some(match refusal(facts) {
        Some((cause, why, fix)) => {
            setting(&CFG017, cause, headline, Confidence::High).shown([asked, why, counted]).fixed(fix)
        }
        None => setting(&CFG017, "code", headline, Confidence::Medium).shown([asked, counted]).fixed(
            Statement::new(
                "look for its message in PHP-FPM's log at the start, or set opcache.huge_code_pages=0",
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use slip_model::{HugePages, PhpAnswer};

    use super::super::asked::tests::{causes, recording};
    use super::*;

    fn worker() -> WorkerMemory {
        WorkerMemory { pid: 7, anonymous: 40 << 20, ..WorkerMemory::default() }
    }

    fn found(enabled: &str, worker: WorkerMemory, code: &str) -> Vec<&'static str> {
        let mut recording = recording(&[("opcache.huge_code_pages", code)], PhpAnswer::default());
        if let Some(facts) = &mut recording.facts {
            facts.huge_pages = HugePages { enabled: enabled.to_owned() };
            facts.workers = vec![worker];
        }
        causes(&judge(&recording))
    }

    #[test]
    fn who_asks_for_none_misses_none() {
        assert_eq!([found("never", worker(), "0"), found("always", worker(), "0")], [[""; 0]; 2]);
    }

    #[test]
    fn who_asks_for_them_is_told_why_there_are_none() {
        let asks = WorkerMemory { wants_huge_pages: Some(HugePagesWish::Zend), ..worker() };
        assert_eq!(found("never", asks.clone(), "0"), ["never"]);
        let calls = WorkerMemory { wants_huge_pages: Some(HugePagesWish::Madvise), ..worker() };
        assert_eq!(found("never", calls, "0"), ["never"]);
        assert_eq!(
            found("madvise", WorkerMemory { refuses_huge_pages: true, ..asks.clone() }, "0"),
            ["refused"]
        );
        assert_eq!(found("madvise", asks.clone(), "0"), ["none"]);
        assert_eq!(found("madvise", WorkerMemory { anonymous_huge: 2 << 20, ..asks }, "0"), [""; 0]);
        assert_eq!(found("never", worker(), "1"), ["never"]);
        assert_eq!(found("madvise", worker(), "1"), ["code"]);
        assert_eq!(found("madvise", WorkerMemory { code_huge: 4 << 20, ..worker() }, "1"), [""; 0]);
    }
}
