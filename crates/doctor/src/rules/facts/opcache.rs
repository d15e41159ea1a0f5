//! CFG011, opcache keeps no code, and CFG012, it has no room.

use slip_model::{Opcache, PhpAnswer, Recording};

use super::asked::{answer, found_or, setting, unanswered};
use crate::{CFG011, CFG012, Confidence, Finding, Statement, Value, Verdict, tenths};

/// Fewer scripts that were asked for tell nothing: each is compiled once.
const MIN_LOOKUPS: u64 = 1_000;

/// Scripts that were not found, in tenths of a per cent, from which on it is told.
const MIN_MISSED: u64 = 100;

/// Less free memory than this holds no further script of a framework.
const LEAST_FREE: u64 = 1 << 20;

/// Less free room for strings than this is none.
const LEAST_FREE_STRINGS: u64 = 64 << 10;

/// Who begins anew more than once in this time, in seconds, does so too often.
const RESTART_S: u64 = 600;

/// So often it has to have begun anew before that is told.
const MIN_RESTARTS: u64 = 3;

/// The name that PHP has for the extension.
const NAME: &str = "Zend OPcache";

pub(crate) fn judge_use(recording: &Recording) -> Verdict {
    let php = match answer(recording) {
        Ok(php) => php,
        Err(verdict) => return verdict,
    };
    let load = || Statement::new("load it and switch it on: zend_extension=opcache, opcache.enable=1");
    if !php.has_extension(NAME) {
        let headline = Statement::new("opcache is not loaded: each request compiles all of its code");
        let evidence = Statement::new("PHP {version} lists its extensions, and opcache is not among them")
            .with("version", Value::Name(php.version.clone()))
            .by("get_loaded_extensions");
        return Verdict::Found(vec![
            setting(&CFG011, "not_loaded", headline, Confidence::High).shown([evidence]).fixed(load()),
        ]);
    }
    let Some(opcache) = &php.opcache else { return without_status(php) };
    if !opcache.enabled {
        return Verdict::Found(vec![off(php)]);
    }
    if opcache.only_files {
        let headline = Statement::new("opcache keeps code in files alone: each request reads it from there");
        let evidence = Statement::new("opcache.file_cache_only is on").by("opcache_get_status");
        return Verdict::Found(vec![
            setting(&CFG011, "only_files", headline, Confidence::High)
                .shown([evidence])
                .fixed(Statement::new("opcache.file_cache_only=0: memory that all workers share")),
        ]);
    }
    let lookups = opcache.hits.saturating_add(opcache.misses);
    let missed = tenths(opcache.misses.into(), lookups.into());
    let of_lookups = |text| {
        Statement::new(text)
            .with("misses", Value::Count(opcache.misses))
            .with("lookups", Value::Count(lookups))
            .with("share", Value::Tenths(missed))
            .by("opcache_get_status")
    };
    if lookups >= MIN_LOOKUPS && missed >= MIN_MISSED && !is_full(opcache) {
        let headline = of_lookups("opcache misses {share} of scripts: {misses} of {lookups} were compiled");
        let scripts = Statement::new(
            "it has {scripts} scripts, and {blacklisted} were asked for that its blacklist names",
        )
        .with("scripts", Value::Count(opcache.scripts))
        .with("blacklisted", Value::Count(opcache.blacklist_misses))
        .by("opcache_get_status");
        let free =
            Statement::new("too little memory: {free} is free").with("free", Value::Bytes(opcache.free));
        return Verdict::Found(vec![
            setting(&CFG011, "missed", headline, Confidence::Medium).shown([scripts]).not(free).fixed(Statement::new(
                "look for scripts that are written anew in each request, and at opcache.blacklist_filename and \
                 opcache.file_update_protection",
            )),
        ]);
    }
    Verdict::Quiet(of_lookups(
        "opcache is on: {misses} of {lookups} scripts, {share}, were compiled since its start",
    ))
}

/// It is loaded, and did not say how it is.
fn without_status(php: &PhpAnswer) -> Verdict {
    if let Some(verdict) = unanswered(php, "opcache") {
        return verdict;
    }
    if !php.is_on("opcache.enable") {
        return Verdict::Found(vec![off(php)]);
    }
    let headline =
        Statement::new("opcache is switched on and did not start: each request compiles all of its code");
    let evidence = Statement::new("opcache.enable is on, and opcache has no state").by("opcache_get_status");
    Verdict::Found(vec![
        setting(&CFG011, "not_started", headline, Confidence::Medium).shown([evidence]).fixed(
            Statement::new(
                "look for its message in PHP-FPM's log at the start: mostly it got no shared memory",
            ),
        ),
    ])
}

fn off(php: &PhpAnswer) -> Finding {
    let headline =
        Statement::new("opcache is loaded and switched off: each request compiles all of its code");
    let evidence = Statement::new("opcache.enable is {value}")
        .with("value", Value::Name(php.setting("opcache.enable").to_owned()))
        .by("ini_get");
    setting(&CFG011, "off", headline, Confidence::High)
        .shown([evidence])
        .fixed(Statement::new("opcache.enable=1 in php.ini, and not set to 0 by the pool"))
}

fn is_full(opcache: &Opcache) -> bool {
    opcache.cache_full || opcache.free < LEAST_FREE || has_no_names(opcache)
}

fn has_no_names(opcache: &Opcache) -> bool {
    opcache.max_keys > 0 && opcache.keys >= opcache.max_keys
}

pub(crate) fn judge_room(recording: &Recording) -> Verdict {
    let php = match answer(recording) {
        Ok(php) => php,
        Err(verdict) => return verdict,
    };
    let opcache = match &php.opcache {
        Some(opcache) if opcache.enabled && !opcache.only_files => opcache,
        Some(_) => return Verdict::NotOf(Statement::new("opcache keeps no code in memory")),
        None => {
            let none = || Verdict::NotOf(Statement::new("opcache is off"));
            return unanswered(php, "opcache").unwrap_or_else(none);
        }
    };
    let found = [memory(php, opcache), names(php, opcache), strings(php, opcache), restarts(php, opcache)];
    let quiet = Statement::new("{free} of opcache's memory is free, and {keys} of {most} names are in use")
        .with("free", Value::Bytes(opcache.free))
        .with("keys", Value::Count(opcache.keys))
        .with("most", Value::Count(opcache.max_keys))
        .by("opcache_get_status");
    found_or(found.into_iter().flatten().collect(), quiet)
}

/// What opcache's memory is used for.
fn of_memory(opcache: &Opcache, text: &'static str) -> Statement {
    Statement::new(text)
        .with("free", Value::Bytes(opcache.free))
        .with("used", Value::Bytes(opcache.used))
        .with("wasted", Value::Bytes(opcache.wasted))
        .by("opcache_get_status")
}

fn memory(php: &PhpAnswer, opcache: &Opcache) -> Option<Finding> {
    let is_short = opcache.free < LEAST_FREE || opcache.cache_full && !has_no_names(opcache);
    if !is_short && opcache.oom_restarts == 0 {
        return None;
    }
    let headline = if is_short {
        Statement::new("opcache's memory is full: what does not fit is compiled in each request")
    } else {
        Statement::new("opcache's memory was full {times} times, and all of it was compiled anew")
            .with("times", Value::Count(opcache.oom_restarts))
    };
    let names = Statement::new("too few names: {keys} of {most} are in use")
        .with("keys", Value::Count(opcache.keys))
        .with("most", Value::Count(opcache.max_keys));
    let finding = setting(&CFG012, "memory", headline, Confidence::High)
        .shown([
            of_memory(opcache, "{used} in use, {free} free, {wasted} of scripts that have changed since"),
            Statement::new("{restarts} restarts because of that since its start")
                .with("restarts", Value::Count(opcache.oom_restarts))
                .by("opcache_get_status"),
        ])
        .fixed(
            Statement::new("raise opcache.memory_consumption, which is {now} MB")
                .with("now", Value::Name(php.setting("opcache.memory_consumption").to_owned())),
        );
    Some(if has_no_names(opcache) { finding } else { finding.not(names) })
}

fn names(php: &PhpAnswer, opcache: &Opcache) -> Option<Finding> {
    if !has_no_names(opcache) && opcache.hash_restarts == 0 {
        return None;
    }
    let headline =
        Statement::new("opcache has no room for the names of scripts: others are compiled in each request");
    let evidence = Statement::new(
        "{keys} of {most} names are in use, and it has begun anew {restarts} times because of that",
    )
    .with("keys", Value::Count(opcache.keys))
    .with("most", Value::Count(opcache.max_keys))
    .with("restarts", Value::Count(opcache.hash_restarts))
    .by("opcache_get_status");
    Some(
        setting(&CFG012, "names", headline, Confidence::High)
            .shown([evidence])
            .not(of_memory(opcache, "too little memory: {free} is free, {used} in use, {wasted} wasted"))
            .fixed(
                Statement::new("raise opcache.max_accelerated_files, which is {now}")
                    .with("now", Value::Name(php.setting("opcache.max_accelerated_files").to_owned())),
            ),
    )
}

fn strings(php: &PhpAnswer, opcache: &Opcache) -> Option<Finding> {
    if opcache.strings_size == 0 || opcache.strings_free >= LEAST_FREE_STRINGS {
        return None;
    }
    let headline =
        Statement::new("opcache's room for strings is full: each worker keeps further ones for itself");
    let evidence = Statement::new("{used} of {size} in use, {free} free")
        .with("used", Value::Bytes(opcache.strings_used))
        .with("size", Value::Bytes(opcache.strings_size))
        .with("free", Value::Bytes(opcache.strings_free))
        .by("opcache_get_status");
    Some(
        setting(&CFG012, "strings", headline, Confidence::High).shown([evidence]).fixed(
            Statement::new("raise opcache.interned_strings_buffer, which is {now} MB")
                .with("now", Value::Name(php.setting("opcache.interned_strings_buffer").to_owned())),
        ),
    )
}

fn restarts(php: &PhpAnswer, opcache: &Opcache) -> Option<Finding> {
    let uptime_s = php.time_s.saturating_sub(opcache.start_s);
    let is_often =
        opcache.manual_restarts >= MIN_RESTARTS && uptime_s / opcache.manual_restarts.max(1) < RESTART_S;
    if !(is_often || opcache.restart_pending || opcache.restart_in_progress) {
        return None;
    }
    let headline = if is_often {
        Statement::new("opcache is emptied again and again: {times} times in {uptime}, and all is compiled anew each time")
            .with("times", Value::Count(opcache.manual_restarts))
            .with("uptime", Value::Ns(uptime_s.saturating_mul(1_000_000_000)))
    } else {
        Statement::new("opcache is being emptied: nothing is taken from it meanwhile")
    };
    let evidence =
        Statement::new("{manual} restarts that somebody asked for, {memory} for memory, {names} for names")
            .with("manual", Value::Count(opcache.manual_restarts))
            .with("memory", Value::Count(opcache.oom_restarts))
            .with("names", Value::Count(opcache.hash_restarts))
            .by("opcache_get_status");
    Some(
        setting(&CFG012, "restarts", headline, if is_often { Confidence::High } else { Confidence::Medium })
            .shown([evidence])
            .fixed(Statement::new(
                "find who calls opcache_reset(): plugins and deployments do; opcache.restrict_api keeps others from it",
            )),
    )
}

#[cfg(test)]
mod tests {
    use super::super::asked::tests::{causes, recording};
    use super::*;

    fn healthy() -> Opcache {
        Opcache {
            enabled: true,
            used: 60 << 20,
            free: 68 << 20,
            strings_size: 8 << 20,
            strings_used: 3 << 20,
            strings_free: 5 << 20,
            scripts: 400,
            keys: 700,
            max_keys: 16_229,
            hits: 90_000,
            misses: 420,
            start_s: 1_000,
            ..Opcache::default()
        }
    }

    fn asked(opcache: Option<Opcache>) -> PhpAnswer {
        PhpAnswer { extensions: vec![NAME.to_owned()], opcache, time_s: 4_600, ..PhpAnswer::default() }
    }

    fn found(opcache: Opcache) -> (Vec<&'static str>, Vec<&'static str>) {
        let recording = recording(&[("opcache.enable", "1")], asked(Some(opcache)));
        (causes(&judge_use(&recording)), causes(&judge_room(&recording)))
    }

    #[test]
    fn one_that_is_well_configured_is_not_told() {
        assert_eq!(found(healthy()), (vec![], vec![]));
        // A pool that has just started compiles everything once.
        assert_eq!(found(Opcache { hits: 10, misses: 400, ..healthy() }), (vec![], vec![]));
    }

    #[test]
    fn one_that_does_not_take_part_is_told_with_the_reason() {
        assert_eq!(found(Opcache::default()).0, ["off"]);
        assert_eq!(found(Opcache { only_files: true, ..healthy() }).0, ["only_files"]);
        assert_eq!(found(Opcache { misses: 40_000, ..healthy() }).0, ["missed"]);
        let enabled = |value, answer| causes(&judge_use(&recording(&[("opcache.enable", value)], answer)));
        assert_eq!(enabled("0", asked(None)), ["off"]);
        assert_eq!(enabled("1", asked(None)), ["not_started"]);
        assert_eq!(enabled("1", PhpAnswer::default()), ["not_loaded"]);
        let refused =
            PhpAnswer { unanswered: vec!["opcache_get_status is disabled".to_owned()], ..asked(None) };
        let verdict = judge_use(&recording(&[("opcache.enable", "1")], refused));
        assert!(matches!(verdict, Verdict::TooLittle(_)));
    }

    #[test]
    fn room_that_is_used_up_is_told_by_its_kind() {
        let full = Opcache { cache_full: true, free: 100, misses: 40_000, ..healthy() };
        assert_eq!(found(full), (vec![], vec!["memory"]));
        assert_eq!(found(Opcache { oom_restarts: 2, ..healthy() }).1, ["memory"]);
        assert_eq!(found(Opcache { cache_full: true, keys: 16_229, ..healthy() }).1, ["names"]);
        assert_eq!(found(Opcache { strings_free: 900, ..healthy() }).1, ["strings"]);
        // 12 times in an hour, and twice.
        assert_eq!(found(Opcache { manual_restarts: 12, ..healthy() }).1, ["restarts"]);
        assert_eq!(found(Opcache { manual_restarts: 2, ..healthy() }).1, [""; 0]);
    }
}
