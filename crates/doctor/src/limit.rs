//! Limits that somebody sets, for programs that ask whether all is well.

use crate::requests::Spread;
use crate::{Line, Rule, Sheet, Unit, tenths};

/// What must not be longer than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What.
    pub of: Of,
    /// More is too much.
    pub amount: Amount,
}

/// What a [`Limit`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Any finding, however small.
    Any,
    /// What this rule has found.
    Rule(&'static Rule),
    /// PHP's own boot, and with it the application's, on average.
    Boot,
    /// A line.
    Line(Line, Quantile),
    /// All of a unit.
    Whole(Quantile),
}

/// Of all units, which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// On average.
    Mean,
    /// The middle one.
    P50,
    /// Longer than 95 of 100.
    P95,
    /// Longer than 99 of 100.
    P99,
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Nanoseconds for each unit.
    Ns(u64),
    /// Tenths of a per cent of a unit's average time.
    Tenths(u64),
}

impl Sheet {
    /// Whether more than this limit was found; `None` if that cannot be told.
    pub fn exceeds(&self, limit: &Limit) -> Option<bool> {
        if self.nothing.is_some() {
            return None;
        }
        let ns = match limit.of {
            Of::Any => return Some(!self.findings.is_empty()),
            Of::Rule(rule) => {
                if self.too_little.iter().any(|(other, _)| *other == rule) {
                    return None;
                }
                let found = self.findings.iter().filter(|finding| finding.rule == rule);
                // One that costs no time is more than nothing.
                found.map(|finding| finding.ns().max(1)).fold(0, u64::saturating_add)
            }
            Of::Boot => self.boot_ns()?,
            Of::Line(line, quantile) => self.line_ns(line, quantile)?,
            Of::Whole(quantile) => self.table.requests.whole.map_or_else(
                || (quantile == Quantile::Mean).then_some(self.unit_ns),
                |whole| Some(of(whole, quantile)),
            )?,
        };
        Some(match limit.amount {
            Amount::Ns(most) => ns > most,
            Amount::Tenths(most) => tenths(ns.into(), self.unit_ns.into()) > most,
        })
    }

    fn line_ns(&self, line: Line, quantile: Quantile) -> Option<u64> {
        if !self.table.sees(line) {
            return None;
        }
        if quantile == Quantile::Mean {
            return self.lines.iter().find(|row| row.line == line).map(|row| row.ns);
        }
        if self.unit != Unit::Request {
            return None;
        }
        let requests = &self.table.requests;
        requests.lines.iter().find(|row| row.line == line).map(|row| of(row.spread, quantile))
    }

    fn boot_ns(&self) -> Option<u64> {
        let line_ns = self.line_ns(Line::Boot, Quantile::Mean)?;
        let Some(boot) = &self.table.boot else { return Some(line_ns) };
        let (share, _) = boot.share()?;
        let code_ns = u128::from(self.line_ns(Line::Code, Quantile::Mean)?);
        Some(line_ns.saturating_add(u64::try_from(code_ns * u128::from(share) / 1_000).unwrap_or(u64::MAX)))
    }
}

fn of(spread: Spread, quantile: Quantile) -> u64 {
    match quantile {
        Quantile::Mean => spread.mean_ns,
        Quantile::P50 => spread.p50_ns,
        Quantile::P95 => spread.p95_ns,
        Quantile::P99 => spread.p99_ns,
    }
}
