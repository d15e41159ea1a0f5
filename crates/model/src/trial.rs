//! What a trial of the extension found.

use serde::{Deserialize, Serialize};

/// One page, asked for many times in turns of two PHP-FPM of one worker each: one restores the booted state, the other boots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trial {
    /// The page as it was asked for, without its query.
    pub page: String,
    /// Pairs of requests that were measured.
    pub pairs: u64,
    /// How many of these were restored.
    pub restores: u64,
    /// Images that were made, up to the end.
    pub snapshots: u64,
    /// The median of requests that boot, from the connection to the end of the response, nanoseconds.
    pub plain_ns: u64,
    /// And of those that may restore.
    pub restored_ns: u64,
    /// By how much the latter are shorter: the median of the pairs.
    pub saved_ns: i64,
    /// The interval that holds it with 95 %.
    pub saved_low_ns: i64,
    /// Its other end.
    pub saved_high_ns: i64,
    /// Why no image was made, and how often, the most frequent first.
    pub refusals: Vec<(String, u64)>,
    /// Why one was not restored, likewise.
    pub fallbacks: Vec<(String, u64)>,
}

impl Trial {
    /// Whether nearly all requests were restored, so that the times say what that saves.
    pub fn is_restored(&self) -> bool {
        self.pairs > 0 && self.restores.saturating_mul(10) >= self.pairs.saturating_mul(9)
    }
}
