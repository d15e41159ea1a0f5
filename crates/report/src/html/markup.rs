//! HTML that is put together from text of ours and names of others, which cannot be taken for each other.

use serde::Serialize;

use crate::ReportError;
use crate::text::clean;

/// HTML so far.
#[derive(Debug, Default)]
pub(super) struct Markup(String);

impl Markup {
    /// Appends HTML of ours: only what is written in the program, or included in it.
    pub(super) fn raw(&mut self, html: &'static str) -> &mut Self {
        self.0.push_str(html);
        self
    }

    /// Appends text, which may come from a target, as it is to be read. Also good within quotes.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for character in clean(text).chars() {
            match character {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    /// Appends a sentence in which what stands between backticks is code.
    pub(super) fn sentence(&mut self, text: &str) -> &mut Self {
        let pieces: Vec<&str> = text.split('`').collect();
        if pieces.len().is_multiple_of(2) {
            // One has no other end.
            return self.text(text);
        }
        for (at, piece) in pieces.into_iter().enumerate() {
            if at.is_multiple_of(2) {
                self.text(piece);
            } else {
                // Options are not to be cut at their hyphens; what is long has to be cut somewhere.
                self.raw(if piece.len() < 24 { "<code class=\"short\">" } else { "<code>" });
                self.text(piece).raw("</code>");
            }
        }
        self
    }

    /// Appends JSON for a script element. A browser ends that at `</script`, and looks for `<!--` in it, so no `<` is left.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<&mut Self, ReportError> {
        self.0.push_str(&serde_json::to_string(value)?.replace('<', "\\u003c"));
        Ok(self)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        let mut markup = Markup::default();
        markup.raw("<p title=\"").text("\"><script>'&\u{202e}\x1b").raw("\">");
        assert_eq!(markup.0, "<p title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\\u{202e}\\x1b\">");
        let mut markup = Markup::default();
        markup.sentence("a `<b>` c").sentence("`");
        assert_eq!(markup.0, "a <code class=\"short\">&lt;b&gt;</code> c`");
        let mut markup = Markup::default();
        markup.json(&["</script><!--"]).unwrap();
        assert_eq!(markup.0, "[\"\\u003c/script>\\u003c!--\"]");
    }
}
