//! What is on the terminal, and what has to be written to make it what it should be.

use std::io::{self, Write as _};

use crossterm::QueueableCommand as _;
use crossterm::cursor::Hide;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::backend::{Backend as _, CrosstermBackend};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::Color;

use crate::app::App;

/// The colour of a place that is to be written whatever it is to show: no frame has it.
const NO_COLOUR: Color = Color::Rgb(1, 1, 1);

/// Two buffers: what the terminal shows, and what it is to show next.
///
/// What differs is written at once, between the marks of a synchronized update, so that terminals which know these show no half of
/// it. Nothing is ever cleared, also not when the size has changed: each place is then written anew, the empty ones too.
#[derive(Debug, Default)]
pub struct Screen {
    shown: Buffer,
    next: Buffer,
    bytes: Vec<u8>,
}

impl Screen {
    /// Forgets what the terminal shows: the next frame is written whole.
    pub fn forget(&mut self) {
        self.shown = Buffer::default();
    }

    /// What has to be written so that a terminal of this size shows `app`; nothing if it does.
    ///
    /// # Errors
    ///
    /// None happen: it is memory that is written to.
    pub fn frame(&mut self, app: &mut App, width: u16, height: u16) -> io::Result<&[u8]> {
        let area = Rect::new(0, 0, width, height);
        if *self.shown.area() != area {
            let mut unknown = Cell::default();
            unknown.fg = NO_COLOUR;
            self.shown = Buffer::filled(area, unknown);
            self.next.resize(area);
        }
        self.next.reset();
        app.draw(area, &mut self.next);
        self.bytes.clear();
        let changes = self.shown.diff(&self.next);
        if !changes.is_empty() {
            self.bytes.queue(BeginSynchronizedUpdate)?.queue(Hide)?;
            CrosstermBackend::new(&mut self.bytes).draw(changes.into_iter())?;
            self.bytes.queue(EndSynchronizedUpdate)?;
            self.bytes.flush()?;
        }
        std::mem::swap(&mut self.shown, &mut self.next);
        Ok(&self.bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::support::pool;

    #[test]
    fn only_what_has_changed_is_written() {
        let (mut screen, mut app) = (Screen::default(), pool());
        let whole = screen.frame(&mut app, 200, 50).unwrap().len();
        assert!(whole > 10_000, "each place is written: {whole}");
        assert_eq!(screen.frame(&mut app, 200, 50).unwrap(), b"");
        app.key(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::NONE));
        let paused = screen.frame(&mut app, 200, 50).unwrap();
        assert!(paused.len() < 200, "{}", String::from_utf8_lossy(paused));
        assert!(paused.starts_with(b"\x1b[?2026h") && paused.ends_with(b"\x1b[?2026l"));
    }

    #[test]
    fn another_size_is_written_whole_and_nothing_is_cleared() {
        let (mut screen, mut app) = (Screen::default(), pool());
        for (width, height) in [(60, 12), (200, 50), (60, 12), (1, 1), (0, 0), (80, 24)] {
            let text = String::from_utf8(screen.frame(&mut app, width, height).unwrap().to_vec()).unwrap();
            assert!(!text.contains("\x1b[2J") && !text.contains("\x1b[J") && !text.contains("\x1b[K"));
            // All of an escape sequence is ASCII, and most of a frame is blank or ASCII.
            assert!(text.len() >= usize::from(width) * usize::from(height), "{width}x{height}");
        }
        screen.forget();
        assert!(screen.frame(&mut app, 80, 24).unwrap().len() > 80 * 24);
    }
}
