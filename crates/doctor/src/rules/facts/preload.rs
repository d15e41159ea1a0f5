//! CFG014: preloading is configured, and not what runs is preloaded.

use slip_model::{PhpAnswer, Preload, Recording};

use super::asked::{answer, setting, unanswered};
use crate::{CFG014, Confidence, Statement, Value, Verdict};

pub(crate) fn judge(recording: &Recording) -> Verdict {
    let php = match answer(recording) {
        Ok(php) => php,
        Err(verdict) => return verdict,
    };
    let Some(opcache) = &php.opcache else {
        let none = || Verdict::NotOf(Statement::new("opcache is off, which it is part of"));
        return unanswered(php, "opcache").unwrap_or_else(none);
    };
    match &opcache.preload {
        Some(preload) if preload.newer > 0 || preload.missing > 0 => stale(preload),
        Some(preload) => Verdict::Quiet(
            Statement::new("{scripts} files were preloaded, {memory}, and none has changed since")
                .with("scripts", Value::Count(preload.scripts))
                .with("memory", Value::Bytes(preload.memory))
                .by("opcache_get_status"),
        ),
        None if php.setting("opcache.preload").is_empty() => {
            Verdict::Quiet(Statement::new("nothing is to be preloaded").by("ini_get"))
        }
        None => unused(php),
    }
}

fn stale(preload: &Preload) -> Verdict {
    let headline = Statement::new(
        "preloaded code is older than its files: {newer} have changed since the start, {missing} are gone",
    )
    .with("newer", Value::Count(preload.newer))
    .with("missing", Value::Count(preload.missing));
    let examples = preload.examples.first().map(|name| {
        Statement::new("{name} among them").with("name", Value::Name(name.clone())).by("filemtime")
    });
    let scripts = Statement::new("{scripts} files were preloaded, and PHP never looks at them again")
        .with("scripts", Value::Count(preload.scripts))
        .by("opcache_get_status");
    Verdict::Found(vec![
        setting(&CFG014, "stale", headline, Confidence::High)
            .shown(std::iter::once(scripts).chain(examples))
            .not(Statement::new("revalidation: opcache.validate_timestamps is not for preloaded files"))
            .fixed(Statement::new("reload PHP-FPM, and do so with each deployment (SIGUSR2 to the master)")),
    ])
}

fn unused(php: &PhpAnswer) -> Verdict {
    let headline = Statement::new("opcache.preload names a script, and nothing is preloaded");
    let evidence = Statement::new("PHP {version} has no statistics of preloading")
        .with("version", Value::Name(php.version.clone()))
        .by("opcache_get_status");
    Verdict::Found(vec![
        setting(&CFG014, "unused", headline, Confidence::Medium).shown([evidence]).fixed(Statement::new(
            "have the script load files (opcache_compile_file, require), set it in php.ini and not in the pool, and restart PHP-FPM",
        )),
    ])
}

#[cfg(test)]
mod tests {
    use slip_model::Opcache;

    use super::super::asked::tests::{causes, recording};
    use super::*;

    fn found(script: &str, preload: Option<Preload>) -> Vec<&'static str> {
        let opcache = Opcache { enabled: true, preload, ..Opcache::default() };
        let php = PhpAnswer { opcache: Some(opcache), ..PhpAnswer::default() };
        causes(&judge(&recording(&[("opcache.preload", script)], php)))
    }

    #[test]
    fn files_that_have_changed_since_the_start_are_told() {
        let fresh = Preload { scripts: 200, memory: 1 << 20, ..Preload::default() };
        assert_eq!([found("1", Some(fresh.clone())), found("", None)], [[""; 0]; 2]);
        let newer = Preload { newer: 3, examples: vec!["/srv/app/Kernel.php".to_owned()], ..fresh.clone() };
        assert_eq!(found("1", Some(newer)), ["stale"]);
        assert_eq!(found("1", Some(Preload { missing: 1, ..fresh })), ["stale"]);
        assert_eq!(found("1", None), ["unused"]);
    }
}
