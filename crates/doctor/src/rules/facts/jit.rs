//! CFG013: the JIT is configured, and not used.

use slip_model::{Jit, PhpAnswer, Recording};

use super::asked::{answer, setting, unanswered};
use crate::{CFG013, Confidence, Finding, Statement, Value, Verdict};

/// Extensions that step in when functions are called, or do so in some of their modes.
const SUSPECTS: [&str; 9] =
    ["xdebug", "pcov", "uopz", "blackfire", "ddtrace", "newrelic", "tideways", "tideways_xhprof", "scoutapm"];

/// Of its buffer, so much has to be free: one part in so many. What remains then is too little for most functions.
const LEAST_FREE_PART: u64 = 64;

pub(crate) fn judge(recording: &Recording) -> Verdict {
    let php = match answer(recording) {
        Ok(php) => php,
        Err(verdict) => return verdict,
    };
    let Some(opcache) = php.opcache.as_ref().filter(|opcache| opcache.enabled) else {
        let none = || Verdict::NotOf(Statement::new("opcache is off, which it is part of"));
        return unanswered(php, "opcache").unwrap_or_else(none);
    };
    let Some(jit) = opcache.jit else {
        return Verdict::NotOf(Statement::new("this PHP was built without it"));
    };
    match finding(php, jit) {
        Some(finding) => Verdict::Found(vec![finding]),
        None if jit.on => Verdict::Quiet(
            Statement::new("it is on, and {free} of its {size} are free")
                .with("free", Value::Bytes(jit.buffer_free))
                .with("size", Value::Bytes(jit.buffer_size))
                .by("opcache_get_status"),
        ),
        None => Verdict::Quiet(Statement::new("it is off, as it is configured").by("ini_get")),
    }
}

fn finding(php: &PhpAnswer, jit: Jit) -> Option<Finding> {
    let mode = || Value::Name(php.setting("opcache.jit").to_owned());
    let state = |text| Statement::new(text).with("mode", mode()).by("ini_get");
    if jit.on {
        return (jit.buffer_size > 0 && jit.buffer_free < jit.buffer_size / LEAST_FREE_PART)
            .then(|| full(jit));
    }
    if is_off(php.setting("opcache.jit")) {
        return None;
    }
    let buffer = php.bytes("opcache.jit_buffer_size").unwrap_or_default().max(jit.buffer_size);
    if buffer == 0 {
        // Before PHP 8.4 it is on by its default, and has no buffer: nobody has asked for it then.
        return php.is_configured("opcache.jit").then(|| {
            let headline = Statement::new("the JIT is configured and has no memory: it compiles nothing");
            setting(&CFG013, "no_buffer", headline, Confidence::High)
                .shown([state("opcache.jit is {mode}, and opcache.jit_buffer_size is 0")])
                .fixed(Statement::new("opcache.jit_buffer_size=64M"))
        });
    }
    let suspects: Vec<&str> = SUSPECTS.into_iter().filter(|name| php.has_extension(name)).collect();
    let headline = Statement::new("the JIT is configured, has memory, and is off");
    let size = Statement::new("too little memory: it has {size}").with("size", Value::Bytes(buffer));
    let evidence = state("opcache.jit is {mode}, and PHP says that it is off");
    Some(if suspects.is_empty() {
        setting(&CFG013, "disabled", headline, Confidence::Low).shown([evidence]).not(size).fixed(Statement::new(
            "look for its warning in PHP-FPM's log at the start: another extension may step in when functions are called",
        ))
    } else {
        let names = || Value::Name(suspects.join(", "));
        let loaded = Statement::new("{names} is loaded, which steps in when functions are called")
            .with("names", names())
            .by("get_loaded_extensions");
        setting(&CFG013, "extension", headline, Confidence::Medium)
            .shown([evidence, loaded])
            .not(size)
            .fixed(Statement::new("do without {names} in production").with("names", names()))
    })
}

fn full(jit: Jit) -> Finding {
    let headline = Statement::new("the JIT's memory is full: what becomes hot now is not compiled");
    let evidence = Statement::new("{free} of {size} is free")
        .with("free", Value::Bytes(jit.buffer_free))
        .with("size", Value::Bytes(jit.buffer_size))
        .by("opcache_get_status");
    setting(&CFG013, "full", headline, Confidence::Medium)
        .shown([evidence])
        .fixed(Statement::new("raise opcache.jit_buffer_size"))
}

fn is_off(mode: &str) -> bool {
    matches!(&*mode.trim().to_ascii_lowercase(), "" | "0" | "off" | "no" | "false" | "disable")
}

#[cfg(test)]
mod tests {
    use slip_model::Opcache;

    use super::super::asked::tests::{causes, recording};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn found(
        mode: &str,
        size: &str,
        is_configured: bool,
        jit: Jit,
        extensions: &[&str],
    ) -> Vec<&'static str> {
        let configured = if is_configured { vec!["opcache.jit".to_owned()] } else { Vec::new() };
        let opcache = Opcache { enabled: true, jit: Some(jit), ..Opcache::default() };
        let extensions = extensions.iter().map(|name| (*name).to_owned()).collect();
        let php = PhpAnswer { opcache: Some(opcache), configured, extensions, ..PhpAnswer::default() };
        causes(&judge(&recording(&[("opcache.jit", mode), ("opcache.jit_buffer_size", size)], php)))
    }

    #[test]
    fn one_that_is_on_or_off_as_configured_is_not_told() {
        let on = Jit { enabled: true, on: true, buffer_size: 64 * MIB, buffer_free: 60 * MIB };
        assert_eq!(found("tracing", "64M", true, on, &["xdebug"]), [""; 0]);
        for mode in ["", "off", "disable", "0"] {
            assert_eq!(found(mode, "64M", true, Jit::default(), &[]), [""; 0], "{mode}");
        }
        // As PHP 8.2 is by default.
        assert_eq!(found("tracing", "0", false, Jit::default(), &[]), [""; 0]);
    }

    #[test]
    fn one_that_is_configured_and_off_is_told_with_the_reason() {
        assert_eq!(found("tracing", "0", true, Jit::default(), &[]), ["no_buffer"]);
        let off = Jit { buffer_size: 64 * MIB, buffer_free: 64 * MIB, ..Jit::default() };
        assert_eq!(found("1254", "64M", true, off, &["Core", "Xdebug"]), ["extension"]);
        assert_eq!(found("1254", "64M", false, off, &["Core"]), ["disabled"]);
        let full = Jit { enabled: true, on: true, buffer_size: 64 * MIB, buffer_free: 9 };
        assert_eq!(found("function", "64M", true, full, &[]), ["full"]);
    }
}
