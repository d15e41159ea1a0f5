//! What to call a process, by its command line. It goes into the file, and arguments may hold secrets.

use std::path::Path;

use slip_model::Language;

/// Options of an interpreter that we know, by their letters.
struct Options {
    /// Without a value.
    flags: &'static str,
    /// With a value, in the same argument or the next.
    values: &'static str,
    /// The value is code.
    code: &'static str,
    /// The value is the script or module to run.
    script: &'static str,
}

/// `python3 --help`, 3.11 to 3.15.
const PYTHON: Options = Options { flags: "bBdEiIOPqRsSuvx", values: "WX", code: "c", script: "m" };

/// `php --help`, 8.2 and 8.4.
const PHP: Options = Options { flags: "aCenq", values: "cdz", code: "rRBE", script: "fF" };

/// A title that the program gave itself, or program and script (or module). No further arguments; what may be one is
/// left out. Empty if there are no arguments.
pub(crate) fn title(arguments: &[String], language: Language) -> String {
    let Some((program, rest)) = arguments.split_first() else { return String::new() };
    if rest.is_empty() && program.contains(' ') {
        return own_title(program).to_owned();
    }
    let name = file_name(program);
    let options = match language {
        Language::Python if name.starts_with("python") => PYTHON,
        Language::Php if name.starts_with("php") => PHP,
        // A program that holds an interpreter has options of its own.
        _ => return name,
    };
    match what_runs(rest, &options) {
        Some(what) => format!("{name} {what}"),
        None => name,
    }
}

/// A title set by the program is one argument with spaces. Some programs put their command line behind what they are:
/// celery `[celeryd: …] -active- (worker -A …)`, the master of PHP-FPM `php-fpm: master process (/etc/…)`.
fn own_title(title: &str) -> &str {
    let end = [" (", " -"].into_iter().filter_map(|begin| title.find(begin)).min();
    title[..end.unwrap_or(title.len())].trim_end()
}

fn what_runs(arguments: &[String], options: &Options) -> Option<String> {
    let mut arguments = arguments.iter();
    'arguments: while let Some(argument) = arguments.next() {
        let Some(letters) = argument.strip_prefix('-') else { return Some(file_name(argument)) };
        for (at, letter) in letters.char_indices() {
            let attached = &letters[at + letter.len_utf8()..];
            if options.flags.contains(letter) {
                continue;
            }
            if options.code.contains(letter) {
                return Some(format!("-{letter}"));
            }
            let mut value =
                || if attached.is_empty() { arguments.next().map(String::as_str) } else { Some(attached) };
            if options.values.contains(letter) {
                value();
                continue 'arguments;
            }
            if options.script.contains(letter) {
                let value = value()?;
                return Some(if letter == 'm' { format!("-m {value}") } else { file_name(value) });
            }
            // Whether the next argument is its value is not known: `--`, an option of a later version.
            return None;
        }
        if letters.is_empty() {
            return None;
        }
    }
    None
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(language: Language, cases: &[(&[&str], &str)]) {
        for (arguments, expected) in cases {
            let owned: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            assert_eq!(title(&owned, language), *expected, "{arguments:?}");
        }
    }

    #[test]
    fn a_python_program_is_called_by_interpreter_and_script() {
        check(
            Language::Python,
            &[
                (&[], ""),
                (&["python3"], "python3"),
                (&["/usr/bin/python3", "/srv/app.py", "SECRET"], "python3 app.py"),
                (&["python3.13", "-d", "app.py", "SECRET"], "python3.13 app.py"),
                (&["python3", "-uOO", "-X", "dev", "-Wignore", "app.py", "SECRET"], "python3 app.py"),
                (&["python3", "-m", "gunicorn", "SECRET"], "python3 -m gunicorn"),
                (&["python3", "-Im", "app", "SECRET"], "python3 -m app"),
                (&["python3", "-mapp", "SECRET"], "python3 -m app"),
                (&["python3", "-c", "SECRET"], "python3 -c"),
                (&["python3", "-ucSECRET"], "python3 -c"),
                (&["python3", "-", "SECRET"], "python3"),
                (&["python3", "--check-hash-based-pycs", "SECRET"], "python3"),
                (&["python3", "-k", "SECRET"], "python3"),
                (&["python3", "-m"], "python3"),
                (&["/opt/my app/bin/python3", "app.py", "SECRET"], "python3 app.py"),
            ],
        );
    }

    #[test]
    fn a_php_program_is_called_by_interpreter_and_script() {
        check(
            Language::Php,
            &[
                (&["php", "artisan", "queue:work", "SECRET"], "php artisan"),
                (&["php8.2", "-d", "key=SECRET", "-nq", "run.php", "SECRET"], "php8.2 run.php"),
                (
                    &["php", "-dkey=SECRET", "-c", "/etc/php.ini", "-f", "/srv/run.php", "--", "SECRET"],
                    "php run.php",
                ),
                (&["php", "-r", "SECRET"], "php -r"),
                (&["php", "-S", "SECRET"], "php"),
                (&["php", "--", "SECRET"], "php"),
            ],
        );
    }

    #[test]
    fn a_program_that_holds_an_interpreter_has_unknown_arguments() {
        check(
            Language::Python,
            &[
                (&["/usr/bin/uwsgi", "--password", "SECRET", "app.ini"], "uwsgi"),
                (&["worker", "SECRET"], "worker"),
            ],
        );
        check(Language::Php, &[(&["frankenphp", "run", "SECRET"], "frankenphp"), (&["phpdbg"], "phpdbg")]);
    }

    #[test]
    fn a_title_of_its_own_is_kept_without_what_may_be_arguments() {
        check(
            Language::Python,
            &[
                (&["gunicorn: worker [shop]"], "gunicorn: worker [shop]"),
                (
                    &["[celeryd: celery@host:MainProcess] -active- (worker -A SECRET)"],
                    "[celeryd: celery@host:MainProcess]",
                ),
                (&["(wsgi:shop)      -k start"], "(wsgi:shop)"),
                (&["worker --password SECRET"], "worker"),
            ],
        );
        check(
            Language::Php,
            &[
                (&["php-fpm: pool www"], "php-fpm: pool www"),
                (&["php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)"], "php-fpm: master process"),
            ],
        );
    }
}
