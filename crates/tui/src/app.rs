//! What is shown now, and what has been seen since.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use slip_model::Window;

use crate::draw;
use crate::view::{Action, View};

/// What does not change while it is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What is watched, as typed.
    pub target: String,
    /// Who takes the samples: `outside` or `kernel`.
    pub sampler: String,
    /// How often.
    pub rate_hz: u32,
    /// What the sampler cannot see, one sentence each.
    pub cannot_see: Vec<String>,
}

/// The whole of `slip top` but for its terminal.
#[derive(Clone, Debug, Default)]
pub struct App {
    pub(crate) about: About,
    pub(crate) view: View,
    pub(crate) shown: Window,
    /// The one after `shown`, while the user has it paused.
    latest: Option<Window>,
}

impl App {
    /// Nothing has been seen yet.
    pub fn new(about: About, view: View) -> Self {
        Self { about, view, ..Self::default() }
    }

    /// What does not change.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// How long windows are to be.
    pub fn interval_ns(&self) -> u64 {
        self.view.interval_ns()
    }

    /// Takes what was seen; whether that is to be drawn.
    pub fn see(&mut self, window: Window) -> bool {
        if self.view.is_paused {
            self.latest = Some(window);
            return false;
        }
        self.shown = window;
        true
    }

    /// Does what a key stands for, or says who has to.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        let action = self.view.key(key);
        if !self.view.is_paused
            && let Some(latest) = self.latest.take()
        {
            self.shown = latest;
        }
        action
    }

    /// Draws all of it.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        draw::draw(self, area, buffer);
    }
}
