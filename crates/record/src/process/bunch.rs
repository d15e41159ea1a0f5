//! Looks at a busy process of Python that are judged several together: see [`slip_cpython::Interpreter::glance`].

use std::time::Duration;

use slip_model::{Outcome, RequestId, StackReading};
use slip_remote::Activity;

use super::{Reader, WatchedProcess, state_of};
use crate::Sink;
use crate::outside::Options;

/// Looks that lie further apart are judged at once: with this a bunch of 16 is done within 24 ms.
const MAX_INTERVAL_NS: u64 = 1_500_000;

/// A look that ends a bunch has copied in vain. It is not worth it if it does so after fewer looks than this.
const FEWEST_LOOKS: usize = 4;

/// After such a bunch, and one in which a look was torn or lost, each is judged at once for so long, and for twice as long each time: what is
/// torn because it waited might otherwise have been copied again. A whole bunch halves it.
const FIRST_PAUSE_NS: u64 = 1_000_000_000;
const MAX_PAUSE_NS: u64 = 16_000_000_000;

/// Looks that are to be judged.
#[derive(Debug, Default)]
pub(super) struct Bunch {
    /// When each was made, and what the thread did.
    looks: Vec<(u64, Activity)>,
    readings: Vec<StackReading>,
    /// When the last look of whatever kind was made.
    looked_ns: u64,
    /// Until when each look is judged at once, and for how long after the next bunch that is not whole.
    until_ns: u64,
    pause_ns: u64,
    /// Whether the thread rests, if that was asked in vain for this look: asked again it would tell of the time since.
    rests: Option<bool>,
}

impl Bunch {
    /// Has each look be judged at once for some time.
    fn pause(&mut self) {
        self.pause_ns = self.pause_ns.max(FIRST_PAUSE_NS);
        self.until_ns = self.looked_ns.saturating_add(self.pause_ns);
        self.pause_ns = (2 * self.pause_ns).min(MAX_PAUSE_NS);
    }
}

impl WatchedProcess {
    /// Looks at a process with one thread that runs, and leaves it to [`WatchedProcess::settle`] to say what there was to see. False if it
    /// has to be looked at otherwise; what was left is settled before that.
    pub(crate) fn glance(&mut self, now_ns: u64, options: Options, sink: &mut Sink) -> bool {
        let is_left = self.try_glance(now_ns, options);
        if !is_left || matches!(&self.reader, Reader::Python(interpreter) if interpreter.is_bunch_full()) {
            self.settle(options, sink);
        }
        is_left
    }

    fn try_glance(&mut self, now_ns: u64, options: Options) -> bool {
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut self.bunch.looked_ns, now_ns));
        let Reader::Python(interpreter) = &mut self.reader else { return false };
        let may_wait = since_ns <= MAX_INTERVAL_NS && now_ns >= self.bunch.until_ns && self.repeatable;
        if !may_wait || now_ns >= self.next_question_ns || self.is_replaced || !options.sees_threads_alone() {
            return false;
        }
        let [thread] = &mut self.threads[..] else { return false };
        let Some(activity) = thread.activity.as_mut().filter(|activity| activity.notes_switches()) else {
            return false;
        };
        let rests = activity.is_resting(Duration::from_nanos(since_ns));
        if rests {
            self.bunch.rests = Some(true);
            return false;
        }
        if !interpreter.glance(&self.memory, now_ns).unwrap_or(false) {
            self.bunch.rests = Some(false);
            if self.bunch.looks.len() < FEWEST_LOOKS {
                self.bunch.pause();
            }
            return false;
        }
        self.bunch.looks.push((now_ns, activity.read()));
        true
    }

    /// Whether all threads rest, if that has been asked for this look.
    pub(super) fn asked_rests(&mut self) -> Option<bool> {
        let rests = self.bunch.rests.take()?;
        Some(rests && self.repeatable && self.threads.len() == self.readings.len())
    }

    /// Judges the looks that were left to it, and stores them.
    pub(crate) fn settle(&mut self, options: Options, sink: &mut Sink) {
        if self.bunch.looks.is_empty() {
            return;
        }
        let Reader::Python(interpreter) = &mut self.reader else { return };
        let mut looks = std::mem::take(&mut self.bunch.looks);
        let mut readings = std::mem::take(&mut self.bunch.readings);
        // What went wrong the next look will find as well.
        let _ = interpreter.settle(&self.memory, &mut sink.interner, &mut readings);
        for ((now_ns, activity), reading) in looks.iter().zip(&readings) {
            let (thread, _) = self.thread(0, reading, false, sink);
            let state = state_of(reading, *activity);
            self.store(*now_ns, options, sink, reading, thread, state, RequestId(0));
        }
        let lost = looks.len() - readings.len().min(looks.len());
        sink.totals.failed += lost as u64;
        let is_whole = lost == 0 && readings.iter().all(|reading| reading.outcome != Outcome::Torn);
        match is_whole {
            true => self.bunch.pause_ns /= 2,
            false => self.bunch.pause(),
        }
        // What a look repeats that finds the thread resting.
        self.repeatable = lost == 0 && readings.last().is_some_and(|last| last.outcome != Outcome::Torn);
        if let Some(last) = readings.last() {
            self.readings.clear();
            self.readings.push(*last);
        }
        looks.clear();
        (self.bunch.looks, self.bunch.readings) = (looks, readings);
    }
}
