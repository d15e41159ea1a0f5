//! Untrusted names and numbers in the columns that they have.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Which part of a text is left out if there is no room for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The end.
    End,
    /// The middle: the end of a qualified name says more than that.
    Middle,
    /// The beginning, folder by folder.
    Begin,
}

/// How many columns a text takes. Wide characters (Chinese, emoji) take two.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// A text of at most `most` columns.
pub(crate) fn fit(text: &str, most: usize, cut: Cut) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    // The mark takes a column, too.
    let Some(room) = most.checked_sub(1) else { return String::new() };
    match cut {
        Cut::End => format!("{}…", head(text, room)),
        Cut::Middle => {
            let first = head(text, room / 3);
            let last = tail(text, room - width(first));
            format!("{first}…{last}")
        }
        Cut::Begin => {
            let last = tail(text, room);
            // A whole folder if that costs less than half.
            let from = last.find('/').filter(|at| at * 2 < last.len()).unwrap_or(0);
            format!("…{}", &last[from..])
        }
    }
}

/// `name (file:line)` in at most `most` columns: the file loses its folders first.
pub(crate) fn fit_place(name: &str, place: &str, most: usize) -> String {
    if place.is_empty() {
        return fit(name, most, Cut::Middle);
    }
    let whole = format!("{name} ({place})");
    if width(&whole) <= most {
        return whole;
    }
    let file = place.rsplit('/').next().unwrap_or(place);
    let for_file = most.saturating_sub(width(name) + 3);
    if for_file > width(file) + 1 {
        return format!("{name} ({})", fit(place, for_file, Cut::Begin));
    }
    if for_file >= width(file) {
        return format!("{name} ({file})");
    }
    // No room for a folder: the name may lose its middle, but for a third of the room.
    let for_name = most.saturating_sub(width(file) + 3);
    if for_name >= most / 3 && for_name >= 4 {
        return format!("{} ({file})", fit(name, for_name, Cut::Middle));
    }
    fit(name, most, Cut::Middle)
}

/// The longest beginning of at most `most` columns.
fn head(text: &str, most: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find_map(|(at, character)| {
        used += character.width().unwrap_or(0);
        (used > most).then_some(at)
    });
    &text[..end.unwrap_or(text.len())]
}

/// The longest end of at most `most` columns.
fn tail(text: &str, most: usize) -> &str {
    let mut used = 0;
    let begin = text.char_indices().rev().find_map(|(at, character)| {
        used += character.width().unwrap_or(0);
        (used > most).then_some(at + character.len_utf8())
    });
    &text[begin.unwrap_or(0)..]
}

/// `12.3 %`. A process with several threads may use more than one CPU.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 2_000 + u128::from(whole)) / (u128::from(whole) * 2).max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// So many each second.
pub(crate) fn rate(count: u64, time_ns: u64) -> String {
    let per_second = count as f64 * 1e9 / time_ns.max(1) as f64;
    if per_second < 100.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_where_it_says_least() {
        assert_eq!(fit("abcdef", 6, Cut::End), "abcdef");
        assert_eq!(fit("abcdef", 4, Cut::End), "abc…");
        assert_eq!(fit("abcdefghijkl", 9, Cut::Middle), "ab…ghijkl");
        assert_eq!(fit("/srv/app/src/Kernel.php:12", 18, Cut::Begin), "…/Kernel.php:12");
        assert_eq!(fit("/srv/app/src/Kernel.php:12", 20, Cut::Begin), "…/src/Kernel.php:12");
        assert_eq!([fit("abc", 1, Cut::End), fit("abc", 0, Cut::Middle)], ["…", ""]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(width("计算"), 4);
        assert_eq!(fit("计算计算", 5, Cut::End), "计算…");
        assert_eq!(fit("计算计算", 6, Cut::End), "计算…");
        assert_eq!(fit("计算计算", 6, Cut::Begin), "…计算");
        for most in 0..12 {
            for cut in [Cut::End, Cut::Middle, Cut::Begin] {
                assert!(width(&fit("é计a算/b计算c", most, cut)) <= most);
            }
        }
    }

    #[test]
    fn a_place_keeps_its_name_and_then_its_file() {
        let (name, place) = ("Kernel::boot", "/srv/app/src/Kernel.php:120");
        for (most, fitted) in [
            (50, "Kernel::boot (/srv/app/src/Kernel.php:120)"),
            (36, "Kernel::boot (…/src/Kernel.php:120)"),
            (30, "Kernel::boot (Kernel.php:120)"),
            (25, "Ke…:boot (Kernel.php:120)"),
            (12, "Kernel::boot"),
            (6, "K…boot"),
        ] {
            let text = fit_place(name, place, most);
            assert!(width(&text) <= most, "{text}");
            assert_eq!(text, fitted);
        }
        assert_eq!(fit_place("strlen", "", 20), "strlen");
    }

    #[test]
    fn shares_and_rates_are_short() {
        assert_eq!([percent(1, 3), percent(2, 1), percent(0, 0)], ["33.3 %", "200.0 %", "0.0 %"]);
        assert_eq!([rate(5, 10_000_000_000), rate(3_920, 10_000_000_000)], ["0.5", "392"]);
    }
}
