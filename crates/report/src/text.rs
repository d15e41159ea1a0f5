//! Numbers and untrusted names as text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Makes a name from a target harmless: control characters, terminal escapes and invisible characters that change how
/// a line reads (text direction, zero width) become escapes such as `\x1b` and `\u{202e}`.
pub fn clean(text: &str) -> Cow<'_, str> {
    clean_also(text, &[])
}

/// JSON text with what [`clean`] makes harmless written as `\u` escapes, which is the same text to a program: JSON itself
/// asks for that below U+0020 only, and terminals obey U+009B as well.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    // Between strings JSON has line ends, and inside them it has none.
    let escape = |character: char| is_harmful(character) && character != '\n';
    if !json.contains(escape) {
        return Cow::Borrowed(json);
    }
    let mut clean = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        if escape(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(clean, "\\u{unit:04x}");
            }
        } else {
            clean.push(character);
        }
    }
    Cow::Owned(clean)
}

/// [`clean`], with more characters that have a meaning where the text goes.
pub(crate) fn clean_also<'a>(text: &'a str, special: &[char]) -> Cow<'a, str> {
    let escape = |character: char| is_harmful(character) || special.contains(&character);
    if !text.contains(escape) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if !escape(character) {
            clean.push(character);
        } else if (character as u32) < 0x100 {
            let _ = write!(clean, "\\x{:02x}", character as u32);
        } else {
            let _ = write!(clean, "\\u{{{:x}}}", character as u32);
        }
    }
    Cow::Owned(clean)
}

fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Soft hyphen, Arabic letter mark, zero width, direction, line and paragraph separators, joiners, byte
            // order mark, interlinear annotations, tags.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// An untrusted name as a Markdown code span, where nothing but backticks has a meaning; with `table`, for a cell of a
/// table, where `|` has one too. Longer names than `most` characters lose their middle.
pub(crate) fn code(text: &str, most: usize, table: bool) -> String {
    span(&shorten(&clean(text), most), table)
}

/// An untrusted `file:line` as [`code`] does it, but a long path loses its beginning, folder by folder.
pub(crate) fn place(file: &str, line: u32, most: usize, table: bool) -> String {
    let text = if line == 0 { file.to_owned() } else { format!("{file}:{line}") };
    let text = clean(&text);
    let count = text.chars().count();
    if count <= most {
        return span(&text, table);
    }
    let tail: String = text.chars().skip(count - (most - 1)).collect();
    let from = tail.find('/').filter(|at| at * 2 < tail.len()).unwrap_or(0);
    span(&format!("…{}", &tail[from..]), table)
}

fn span(text: &str, table: bool) -> String {
    // A span ends at as many backticks as it begins with.
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') || text.is_empty() { " " } else { "" };
    let span = format!("{fence}{pad}{text}{pad}{fence}");
    if table { span.replace('|', "\\|") } else { span }
}

/// Text that is not longer than `most` characters; the middle is cut out if it were.
pub(crate) fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    // The end of a path or a qualified name says more than its beginning.
    let head = most / 3;
    let tail = most - head - 1;
    let mut short: String = text.chars().take(head).collect();
    short.push('…');
    short.extend(text.chars().skip(count - tail));
    Cow::Owned(short)
}

/// `part` of `whole` in tenths of a percent, never above 1000.
pub(crate) fn tenths(part: u64, whole: u64) -> u64 {
    slip_doctor::tenths(part.into(), whole.into())
}

/// `12.3 %`, of [`tenths`].
pub(crate) fn percent(tenths: u64) -> String {
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// `part` of `whole` as `12.3 %`.
pub(crate) fn share(part: u64, whole: u64) -> String {
    percent(tenths(part, whole))
}

/// Shares of a whole in tenths of a percent that add up to 1000 exactly.
pub(crate) fn shares(parts: &[u64]) -> Vec<u64> {
    slip_doctor::shares(&parts.iter().map(|part| u128::from(*part)).collect::<Vec<_>>())
}

/// A time with three digits or so: `12.3 ms`.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..100_000_000 => format!("{:.1} ms", value / 1e6),
        100_000_000..1_000_000_000 => format!("{:.0} ms", value / 1e6),
        1_000_000_000..600_000_000_000 => format!("{:.1} s", value / 1e9),
        600_000_000_000..7_200_000_000_000 => format!("{:.1} min", value / 60e9),
        _ => format!("{:.1} h", value / 3_600e9),
    }
}

/// An amount of memory: `12.3 MB`.
pub fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.0} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.1} GB", value / 1e9),
    }
}

/// A count with separators: `47,520`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A moment in UTC: `2026-11-21 22:10:05 UTC`.
pub(crate) fn date(unix_ns: u64) -> String {
    let [year, month, day, hour, minute, second] = utc(unix_ns);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month, day, hour, minute and second, in UTC, of a moment in nanoseconds since 1970.
pub fn utc(unix_ns: u64) -> [u64; 6] {
    let seconds = unix_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's `civil_from_days`, for days after 1970 only: years are counted from March, so that the day that
    // leap years add is the last one.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [year, month, day, rest / 3_600, rest / 60 % 60, rest % 60]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminals_and_readers_are_not_deceived() {
        assert_eq!(clean("Größe::计算"), "Größe::计算");
        assert_eq!(clean("a\x1b[31mred\u{7}\r\nb"), "a\\x1b[31mred\\x07\\x0d\\x0ab");
        assert_eq!(clean("safe\u{202e}txt.exe\u{200b}\u{9b}1m"), "safe\\u{202e}txt.exe\\u{200b}\\x9b1m");
        assert_eq!(clean_also("a;b", &[';']), "a\\x3bb");
    }

    #[test]
    fn code_spans_hold_anything() {
        assert_eq!(code("f", 9, false), "`f`");
        assert_eq!(code("a`b", 9, false), "``a`b``");
        assert_eq!(code("``a", 9, false), "``` ``a ```");
        assert_eq!(code("<b>a|b</b>", 20, true), "`<b>a\\|b</b>`");
        assert_eq!(code("abcdefghijkl", 9, false), "`abc…hijkl`");
        assert_eq!(place("/srv/app/src/Kernel.php", 12, 21, false), "`…/src/Kernel.php:12`");
        assert_eq!(place("/srv/app/src/Kernel.php", 0, 40, false), "`/srv/app/src/Kernel.php`");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(12_345_678), "12.3 ms");
        assert_eq!(duration(3_600_000_000_000), "60.0 min");
        assert_eq!(bytes(2_097_152), "2.1 MB");
        assert_eq!([count(0), count(999), count(2_851_200)], ["0", "999", "2,851,200"]);
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_795_299_005_000_000_000), "2026-11-21 22:10:05 UTC");
        assert_eq!(share(1, 3), "33.3 %");
        assert_eq!(share(5, 3), "100.0 %");
        assert_eq!(share(5, 0), "0.0 %");
    }

    #[test]
    fn json_stays_the_same_to_programs() {
        let value =
            serde_json::json!({ "a\u{9b}": ["\u{1b}\u{7f}\u{9b}1m\n\t", "\u{202e}\u{e0041}", "Größe"] });
        let json = serde_json::to_string_pretty(&value).unwrap();
        let text = clean_json(&json);
        assert!(!text.replace('\n', "").contains(is_harmful), "{text}");
        assert!(text.contains("Größe"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    proptest! {
        #[test]
        fn shares_add_up(parts: [u64; 5]) {
            let shares = shares(&parts);
            let expected = if parts == [0; 5] { 0 } else { 1_000 };
            prop_assert_eq!(shares.iter().sum::<u64>(), expected);
        }

        #[test]
        fn nothing_harmful_is_left(text: String) {
            let is_safe = |text: &str| !text.contains(is_harmful);
            prop_assert!(is_safe(&clean(&text)));
            prop_assert!(is_safe(&code(&text, 20, true)));
        }
    }
}
