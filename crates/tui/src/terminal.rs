//! Takes the terminal over, and gives it back as it was.

use std::io::{self, Write};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::execute;
use crossterm::terminal::{
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// As long as this lives the terminal is ours: keys come one by one, and what was on it is kept for later. When it is dropped, and when the
/// program panics, the terminal is what it was.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// If it cannot be: there is none, or it is gone.
    pub fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let next = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                // What the panic says must not be lost with the screen that it is said on.
                give_back();
                next(info);
            }));
        });
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Relaxed);
        let guard = Self(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // A panic gives it back before the guard is dropped. A second time the cursor would go where it was before, over what was said since.
    if !IS_TAKEN.swap(false, Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout();
    // If the terminal is gone there is nothing to be put right.
    let _ = execute!(out, EndSynchronizedUpdate, Show, LeaveAlternateScreen);
    let _ = out.flush();
    let _ = disable_raw_mode();
}

/// What comes from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(KeyEvent),
    /// It has another size now: columns and rows.
    Resize(u16, u16),
}

/// Waits until something comes from the terminal.
///
/// # Errors
///
/// If the terminal is gone.
pub fn wait_for_input() -> io::Result<Input> {
    loop {
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(Input::Key(key)),
            Event::Resize(width, height) => return Ok(Input::Resize(width, height)),
            _ => {}
        }
    }
}

/// The size of the terminal, in columns and rows.
///
/// # Errors
///
/// If there is none.
pub fn size() -> io::Result<(u16, u16)> {
    crossterm::terminal::size()
}
