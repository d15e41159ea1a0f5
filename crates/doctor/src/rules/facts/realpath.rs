//! CFG015: the cache of real paths is off or full.

use slip_model::Recording;

use super::asked::{answer, setting, unanswered};
use crate::{CFG015, Confidence, Statement, Value, Verdict, tenths};

/// So much of it in use, in tenths of a per cent, is all: a path takes some hundred bytes, and there is no room for a longer one.
const FULL: u64 = 950;

pub(crate) fn judge(recording: &Recording) -> Verdict {
    let php = match answer(recording) {
        Ok(php) => php,
        Err(verdict) => return verdict,
    };
    if let Some(verdict) = unanswered(php, "realpath") {
        return verdict;
    }
    let Some(limit) = php.bytes("realpath_cache_size") else {
        return Verdict::TooLittle(Statement::new("PHP did not say how large it may be"));
    };
    let used = php.realpath_bytes;
    let use_of = |text| {
        Statement::new(text)
            .with("used", Value::Bytes(used))
            .with("limit", Value::Bytes(limit))
            .by("realpath_cache_size")
    };
    if limit == 0 || used == 0 {
        let is_limited = !php.setting("open_basedir").is_empty();
        let headline =
            Statement::new("the cache of real paths is off: each include resolves its path by system calls");
        let finding = setting(
            &CFG015,
            "off",
            headline,
            if is_limited || limit == 0 { Confidence::High } else { Confidence::Low },
        )
        .shown([if limit == 0 {
            Statement::new("realpath_cache_size is 0").by("ini_get")
        } else {
            use_of("{used} of {limit} is in use, in a worker that has just resolved a path")
        }]);
        return Verdict::Found(vec![if is_limited {
            finding
                .shown([Statement::new("open_basedir is set, which switches it off").by("ini_get")])
                .fixed(Statement::new("limit what the pool's user may read in the place of open_basedir"))
        } else {
            finding.fixed(Statement::new("realpath_cache_size=4096K, its default"))
        }]);
    }
    if tenths(used.into(), limit.into()) >= FULL {
        let headline = Statement::new(
            "the cache of real paths is full: further paths are resolved by system calls each time",
        );
        return Verdict::Found(vec![
            setting(&CFG015, "full", headline, Confidence::High)
                .shown([use_of("{used} of {limit} is in use, in the worker that answered")])
                .fixed(Statement::new("raise realpath_cache_size")),
        ]);
    }
    Verdict::Quiet(use_of("{used} of {limit} is in use"))
}

#[cfg(test)]
mod tests {
    use slip_model::PhpAnswer;

    use super::super::asked::tests::{causes, recording};
    use super::*;

    #[test]
    fn a_cache_that_is_off_or_full_is_told() {
        let found = |limit, basedir, realpath_bytes| {
            let php = PhpAnswer { realpath_bytes, ..PhpAnswer::default() };
            causes(&judge(&recording(&[("realpath_cache_size", limit), ("open_basedir", basedir)], php)))
        };
        assert_eq!(found("4096K", "", 300_000), [""; 0]);
        // It may be on all the same, where only the pool sets it.
        assert_eq!(found("4096K", "1", 300_000), [""; 0]);
        assert_eq!(found("0", "", 0), ["off"]);
        assert_eq!(found("4096K", "1", 0), ["off"]);
        assert_eq!(found("16K", "", 16_200), ["full"]);
    }
}
