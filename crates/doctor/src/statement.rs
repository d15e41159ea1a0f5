//! A sentence with its numbers: text for people, values for programs.

/// A sentence from us with places for what was measured: `"{late} of {reads} answers waited {time}"`.
///
/// The text is always our own, so whatever comes from a target or a file is a [`Value`], and whoever sets the sentence makes it harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// What tells it, as the kernel or the interpreter call it: `sched_switch`, `cpu.stat`, `samples`. Empty for what follows from others.
    pub probe: &'static str,
    /// The sentence, in lower case and without a full stop; `{name}` stands for the value of that name.
    pub text: &'static str,
    /// The values by name, in any order.
    pub values: Vec<(&'static str, Value)>,
}

/// What a [`Statement`] says a number of, or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// So many.
    Count(u64),
    /// Nanoseconds.
    Ns(u64),
    /// Bytes.
    Bytes(u64),
    /// A share, in tenths of a per cent.
    Tenths(u64),
    /// So many of one thing for each of another, in hundredths.
    Hundredths(u64),
    /// A name that somebody else gave: a program, a server, a function, a path.
    Name(String),
    /// A word of ours.
    Word(&'static str),
}

impl Statement {
    /// A sentence, of which nobody in particular tells.
    pub fn new(text: &'static str) -> Self {
        Self { text, ..Self::default() }
    }

    /// The same, and who tells it.
    #[must_use]
    pub fn by(self, probe: &'static str) -> Self {
        Self { probe, ..self }
    }

    /// The same with a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        self.values.push((name, value));
        self
    }

    /// The value of this name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(of, _)| *of == name).map(|(_, value)| value)
    }

    /// The sentence, piece by piece: text of ours, and values. A place that has no value is text.
    pub fn pieces(&self) -> Vec<Piece<'_>> {
        let (mut pieces, mut rest) = (Vec::new(), self.text);
        while let Some((before, name, after)) = place(rest) {
            if !before.is_empty() {
                pieces.push(Piece::Text(before));
            }
            match self.value(name) {
                Some(value) => pieces.push(Piece::Value(value)),
                None => pieces.push(Piece::Text(&rest[before.len()..rest.len() - after.len()])),
            }
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
        pieces
    }

    /// Whether each place of the sentence has a value and each value a place.
    pub fn is_whole(&self) -> bool {
        let (mut names, mut rest) = (Vec::new(), self.text);
        while let Some((_, name, after)) = place(rest) {
            names.push(name);
            rest = after;
        }
        names.iter().all(|name| self.value(name).is_some())
            && self.values.iter().all(|(name, _)| names.contains(name))
    }
}

/// A piece of a [`Statement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Ours.
    Text(&'static str),
    /// Measured.
    Value(&'a Value),
}

/// What is before the first place, its name, and what is after it.
fn place(text: &'static str) -> Option<(&'static str, &'static str, &'static str)> {
    let (before, rest) = text.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled() {
        let statement = Statement::new("{late} of {all} waited").with("all", Value::Count(7));
        assert!(!statement.is_whole());
        let pieces = statement.pieces();
        assert_eq!(
            pieces,
            [
                Piece::Text("{late}"),
                Piece::Text(" of "),
                Piece::Value(&Value::Count(7)),
                Piece::Text(" waited")
            ]
        );
        let statement = statement.with("late", Value::Count(2));
        assert!(statement.is_whole());
        assert_eq!(statement.pieces()[0], Piece::Value(&Value::Count(2)));
        assert!(!statement.with("more", Value::Word("x")).is_whole());
        assert_eq!(Statement::new("none").pieces(), [Piece::Text("none")]);
    }
}
