//! Reads what the question's script prints.

use slip_model::PhpAnswer;

/// What stands before it, at the begin of a line.
const MARK: &[u8] = b"\nslip-answer ";

/// Most that is kept of each list. An extension or a path has a name that somebody else gave.
const MAX_ENTRIES: usize = 512;
const MAX_EXAMPLES: usize = 3;

/// Longest text that is kept, in characters.
const MAX_CHARS: usize = 256;

/// The answer in what a request has printed; `None` if there is none.
pub fn parse_answer(body: &[u8]) -> Option<PhpAnswer> {
    let mut answer: PhpAnswer = serde_json::from_slice(after_mark(body)?).ok()?;
    answer.extensions.truncate(MAX_ENTRIES);
    answer.configured.truncate(MAX_ENTRIES);
    answer.unanswered.truncate(MAX_ENTRIES);
    if answer.settings.len() > MAX_ENTRIES {
        answer.settings.clear();
    }
    let texts = [&mut answer.extensions, &mut answer.configured, &mut answer.unanswered];
    texts.into_iter().flatten().chain(answer.settings.values_mut()).for_each(cut);
    [&mut answer.version, &mut answer.pool].into_iter().for_each(cut);
    if let Some(manager) = &mut answer.manager {
        cut(&mut manager.kind);
    }
    if let Some(preload) = answer.opcache.as_mut().and_then(|opcache| opcache.preload.as_mut()) {
        preload.examples.truncate(MAX_EXAMPLES);
        preload.examples.iter_mut().for_each(cut);
    }
    Some(answer)
}

/// The line behind the mark in what a request has printed.
pub(crate) fn after_mark(body: &[u8]) -> Option<&[u8]> {
    // The last one: what is prepended may print anything.
    let begin = body.windows(MARK.len()).rposition(|part| part == MARK)? + MARK.len();
    body[begin..].split(|byte| *byte == b'\n').next()
}

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_CHARS) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_counts_and_what_is_around_it_does_not() {
        let body =
            "warning: x\nslip-answer {}\nslip-answer {\"version\":\"8.4.1\",\"opcache\":null,\"new\":1}\nbye";
        let answer = parse_answer(body.as_bytes()).unwrap();
        assert_eq!((&*answer.version, answer.opcache), ("8.4.1", None));
        for body in ["", "slip-answer {}", "\nslip-answer {", "\nslip-answer {\"time_s\":-1}\n"] {
            assert_eq!(parse_answer(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn long_texts_and_lists_are_cut() {
        let names = vec!["é".repeat(1_000); 1_000];
        let body = format!("\nslip-answer {}\n", serde_json::json!({ "extensions": names }));
        let answer = parse_answer(body.as_bytes()).unwrap();
        assert_eq!((answer.extensions.len(), answer.extensions[0].chars().count()), (MAX_ENTRIES, MAX_CHARS));
    }
}
