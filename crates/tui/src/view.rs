//! What the user has chosen to see, and what keys change of it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::rows::{FunctionColumn, WorkerColumn};

/// How long a window may be.
pub const INTERVALS_NS: [u64; 5] = [500_000_000, 1_000_000_000, 2_000_000_000, 5_000_000_000, 10_000_000_000];

/// Longest text to filter by.
const MAX_FILTER_CHARS: usize = 200;

/// One of the two tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Table {
    #[default]
    Workers,
    Functions,
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Draw again.
    Draw,
    /// Draw again, and write all of it: the terminal may show something else.
    Repaint,
    /// Windows are to be this long from now on.
    Interval(u64),
    /// Give the terminal back and stop until we are continued.
    Suspend,
    /// The end.
    Quit,
    /// The end, by Ctrl-C.
    Interrupt,
}

/// What the user has chosen to see.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Each thread has a row of its own.
    pub threads: bool,
    /// Colours may be used.
    pub has_colour: bool,
    pub(crate) table: Table,
    pub(crate) is_paused: bool,
    pub(crate) shows_help: bool,
    pub(crate) help_scroll: usize,
    pub(crate) help_page: usize,
    /// The text that is being typed.
    pub(crate) typed: Option<String>,
    filter: String,
    by_worker: WorkerColumn,
    by_function: FunctionColumn,
    /// By table.
    reversed: [bool; 2],
    /// First row that is shown, by table.
    pub(crate) scroll: [usize; 2],
    /// Rows that there was room for, by table.
    pub(crate) page: [usize; 2],
    interval: usize,
}

impl View {
    /// The usual view, with windows of this length.
    pub fn new(interval_ns: u64) -> Self {
        let interval = INTERVALS_NS.iter().position(|known| *known >= interval_ns);
        Self { interval: interval.unwrap_or(INTERVALS_NS.len() - 1), ..Self::default() }
    }

    /// The same, sorted by this column in each table that has one of that name.
    #[must_use]
    pub fn sorted_by(self, name: &str) -> Self {
        let by_worker = WorkerColumn::ALL.into_iter().find(|column| column.name() == name);
        let by_function = FunctionColumn::ALL.into_iter().find(|column| column.name() == name);
        Self {
            by_worker: by_worker.unwrap_or(self.by_worker),
            by_function: by_function.unwrap_or(self.by_function),
            ..self
        }
    }

    /// The same, and only rows with this text in them are shown.
    #[must_use]
    pub fn filtered_by(self, text: &str) -> Self {
        Self { filter: text.chars().take(MAX_FILTER_CHARS).collect(), ..self }
    }

    /// Only rows with this text in them are shown: what is being typed counts already.
    pub(crate) fn filter(&self) -> &str {
        self.typed.as_deref().unwrap_or(&self.filter)
    }

    pub(crate) fn worker_order(&self) -> (WorkerColumn, bool) {
        (self.by_worker, self.reversed[0])
    }

    pub(crate) fn function_order(&self) -> (FunctionColumn, bool) {
        (self.by_function, self.reversed[1])
    }

    pub(crate) fn interval_ns(&self) -> u64 {
        INTERVALS_NS[self.interval]
    }

    fn at(&self) -> usize {
        self.table as usize
    }

    /// Changes what the key stands for.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Action {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Action::Interrupt,
            KeyCode::Char('z') if is_control => return Action::Suspend,
            KeyCode::Char('l') if is_control => return Action::Repaint,
            KeyCode::Char(_) if is_control || key.modifiers.contains(KeyModifiers::ALT) => {
                return Action::Nothing;
            }
            _ => {}
        }
        if self.typed.is_some() {
            return self.type_key(key.code);
        }
        if self.shows_help {
            let first = &mut self.help_scroll;
            match key.code {
                KeyCode::Up | KeyCode::Char('k') => *first = first.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => *first = first.saturating_add(1),
                KeyCode::PageUp => *first = first.saturating_sub(self.help_page),
                KeyCode::PageDown | KeyCode::Char(' ') => *first = first.saturating_add(self.help_page),
                KeyCode::Char('q') => return Action::Quit,
                _ => (self.shows_help, *first) = (false, 0),
            }
            return Action::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Char('/') => {
                self.typed = Some(self.filter.clone());
                self.scroll = [0; 2];
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.scroll = [0; 2];
            }
            KeyCode::Char('s') => self.sort_by_next(),
            KeyCode::Char('r') => {
                let at = self.at();
                self.reversed[at] = !self.reversed[at];
                self.scroll[at] = 0;
            }
            KeyCode::Char('t') => self.threads = !self.threads,
            KeyCode::Tab | KeyCode::BackTab => {
                self.table = match self.table {
                    Table::Workers => Table::Functions,
                    Table::Functions => Table::Workers,
                }
            }
            KeyCode::Char('+' | '=') => return self.change_interval(1),
            KeyCode::Char('-' | '_') => return self.change_interval(-1),
            KeyCode::Char(letter) if letter.is_ascii_uppercase() => return self.sort_by_key(letter),
            code => return self.scroll(code),
        }
        Action::Draw
    }

    fn scroll(&mut self, code: KeyCode) -> Action {
        let at = self.at();
        let page = self.page[at].max(1);
        let first = &mut self.scroll[at];
        // What is too far is put right when the rows are counted.
        *first = match code {
            KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => first.saturating_add(1),
            KeyCode::PageUp => first.saturating_sub(page),
            KeyCode::PageDown => first.saturating_add(page),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End => usize::MAX,
            _ => return Action::Nothing,
        };
        Action::Draw
    }

    fn type_key(&mut self, code: KeyCode) -> Action {
        let Some(typed) = &mut self.typed else { return Action::Nothing };
        match code {
            KeyCode::Enter => self.filter = self.typed.take().unwrap_or_default(),
            KeyCode::Esc => {
                self.typed = None;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char(character) if typed.chars().count() < MAX_FILTER_CHARS => typed.push(character),
            _ => return Action::Nothing,
        }
        Action::Draw
    }

    fn change_interval(&mut self, by: isize) -> Action {
        let interval = self.interval.saturating_add_signed(by).min(INTERVALS_NS.len() - 1);
        if interval == self.interval {
            return Action::Nothing;
        }
        self.interval = interval;
        Action::Interval(self.interval_ns())
    }

    fn sort_by_next(&mut self) {
        let next = |at: Option<usize>, count: usize| (at.unwrap_or(0) + 1) % count;
        match self.table {
            Table::Workers => {
                let at = WorkerColumn::ALL.iter().position(|column| *column == self.by_worker);
                self.by_worker = WorkerColumn::ALL[next(at, WorkerColumn::ALL.len())];
            }
            Table::Functions => {
                let at = FunctionColumn::ALL.iter().position(|column| *column == self.by_function);
                self.by_function = FunctionColumn::ALL[next(at, FunctionColumn::ALL.len())];
            }
        }
        self.begin_order();
    }

    fn sort_by_key(&mut self, letter: char) -> Action {
        match self.table {
            Table::Workers => {
                let Some(column) = WorkerColumn::ALL.into_iter().find(|column| column.key() == letter) else {
                    return Action::Nothing;
                };
                self.by_worker = column;
            }
            Table::Functions => {
                let Some(column) = FunctionColumn::ALL.into_iter().find(|column| column.key() == letter)
                else {
                    return Action::Nothing;
                };
                self.by_function = column;
            }
        }
        self.begin_order();
        Action::Draw
    }

    fn begin_order(&mut self) {
        let at = self.at();
        self.reversed[at] = false;
        self.scroll[at] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(view: &mut View, keys: &str) -> Action {
        let press = |view: &mut View, code| view.key(KeyEvent::new(code, KeyModifiers::NONE));
        let code = |letter| match letter {
            '\t' => KeyCode::Tab,
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{7f}' => KeyCode::Backspace,
            letter => KeyCode::Char(letter),
        };
        keys.chars().fold(Action::Nothing, |_, letter| press(view, code(letter)))
    }

    fn control(view: &mut View, letter: char) -> Action {
        view.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL))
    }

    #[test]
    fn each_table_has_an_order_of_its_own() {
        let mut view = View::default();
        assert_eq!(press(&mut view, "s"), Action::Draw);
        assert_eq!(view.worker_order(), (WorkerColumn::Ready, false));
        press(&mut view, "r\tW");
        assert_eq!(view.worker_order(), (WorkerColumn::Ready, true));
        assert_eq!(view.function_order(), (FunctionColumn::Wait, false));
        press(&mut view, "sss");
        assert_eq!(view.function_order(), (FunctionColumn::Where, false));
        press(&mut view, "s");
        assert_eq!(view.function_order(), (FunctionColumn::Own, false));
        // No column of functions.
        assert_eq!(press(&mut view, "P"), Action::Nothing);
        press(&mut view, "\tP");
        assert_eq!(view.worker_order(), (WorkerColumn::Pid, false), "another column begins in its own order");
    }

    #[test]
    fn the_keys_of_columns_differ() {
        let differ = |mut keys: Vec<char>| {
            let count = keys.len();
            keys.sort_unstable();
            keys.dedup();
            keys.len() == count
        };
        assert!(differ(WorkerColumn::ALL.map(WorkerColumn::key).to_vec()));
        assert!(differ(FunctionColumn::ALL.map(FunctionColumn::key).to_vec()));
    }

    #[test]
    fn what_is_typed_filters_at_once_and_is_no_command() {
        let mut view = View::default();
        press(&mut view, "/quit");
        assert_eq!((view.filter(), view.typed.as_deref()), ("quit", Some("quit")));
        press(&mut view, "\u{7f}\n");
        assert_eq!((view.filter(), view.typed.as_deref()), ("qui", None));
        press(&mut view, "/x\u{1b}");
        assert_eq!((view.filter(), view.typed.as_deref()), ("", None));
        press(&mut view, "/é\n\u{1b}");
        assert_eq!(view.filter(), "");
        assert_eq!(control(&mut view, 'c'), Action::Interrupt);
        press(&mut view, "/");
        assert_eq!(control(&mut view, 'c'), Action::Interrupt);
        assert_eq!(press(&mut view, &"x".repeat(300)), Action::Nothing);
        assert_eq!(view.filter().len(), MAX_FILTER_CHARS);
    }

    #[test]
    fn intervals_have_ends() {
        let mut view = View::new(1_000_000_000);
        assert_eq!(press(&mut view, "-"), Action::Interval(500_000_000));
        assert_eq!(press(&mut view, "-"), Action::Nothing);
        assert_eq!(press(&mut view, "++++"), Action::Interval(10_000_000_000));
        assert_eq!(press(&mut view, "+"), Action::Nothing);
    }

    #[test]
    fn a_key_leaves_the_help_and_q_ends() {
        let mut view = View::default();
        press(&mut view, "?");
        assert!(view.shows_help);
        assert_eq!(press(&mut view, "jjk"), Action::Draw);
        assert_eq!((view.shows_help, view.help_scroll), (true, 1));
        assert_eq!(press(&mut view, "s"), Action::Draw);
        assert!(!view.shows_help);
        assert_eq!(view.worker_order().0, WorkerColumn::Cpu, "it did nothing else");
        assert_eq!(press(&mut view, "q"), Action::Quit);
        assert_eq!((control(&mut view, 'z'), control(&mut view, 'l')), (Action::Suspend, Action::Repaint));
        assert_eq!(control(&mut view, 'q'), Action::Nothing);
    }
}
