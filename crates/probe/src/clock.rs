//! The clocks of the CPUs.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use slip_remote::{PerfEvent, PerfScope, open_perf_event};

/// Of `enum perf_sw_ids` (`include/uapi/linux/perf_event.h`).
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;

/// One clock goes off at most so often.
///
/// A clock has one period, and a program that repeats itself as evenly is seen at some of its moments far more often than at others: of
/// one that takes 10 us a turn, 20,000 looks at 7 kHz said 27.6 to 31.4 % for what was 28.6, where chance allows 0.3; at 2 kHz its own
/// unevenness adds up to more than a turn from one look to the next.
const MAX_CLOCK_HZ: f64 = 1_000.0;

/// Most clocks of a CPU.
const MAX_CLOCKS: f64 = 8.0;

/// By so much of what is usual the fastest of them differs from the slowest one.
const SPREAD: f64 = 0.25;

/// The golden ratio less 1: its multiples lie apart from each other, and no two are in step.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// Periods, in nanoseconds, of the clocks of one CPU that together go off once in `interval_ns` on average.
pub(crate) fn periods_ns(interval_ns: u64) -> Vec<u64> {
    let hz = 1e9 / interval_ns.max(1) as f64;
    let count = (hz / MAX_CLOCK_HZ).ceil().clamp(1.0, MAX_CLOCKS);
    if count <= 1.0 {
        return vec![interval_ns];
    }
    let parts: Vec<f64> = (1..=count as u32).map(|nth| (f64::from(nth) * GOLDEN).fract()).collect();
    let mean = parts.iter().sum::<f64>() / count;
    parts.iter().map(|part| (1e9 * count / hz / (1.0 + SPREAD * (part - mean))) as u64).collect()
}

/// Opens a clock of a CPU.
///
/// # Errors
///
/// As `perf_event_open(2)`.
pub(crate) fn open(cpu: u32, period_ns: u64) -> io::Result<OwnedFd> {
    open_perf_event(PerfEvent::Software(PERF_COUNT_SW_CPU_CLOCK), period_ns, 0, PerfScope::Cpu(cpu))
}

/// The CPUs that are there now.
pub(crate) fn online_cpus() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    parse_cpus(text.trim())
}

/// From text such as `0-3,6`.
fn parse_cpus(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_in_ranges() {
        assert_eq!(parse_cpus("0-2,5,7-8"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_cpus(""), []);
    }

    #[test]
    fn a_clock_is_enough_where_it_goes_off_seldom() {
        assert_eq!(periods_ns(10_101_010), [10_101_010]);
        assert_eq!(periods_ns(1_003_009), [1_003_009]);
    }

    #[test]
    fn several_clocks_go_off_as_often_as_one() {
        for hz in [1_001.0, 2_000.0, 9_973.0, 20_000.0] {
            let periods = periods_ns((1e9 / hz) as u64);
            let all: f64 = periods.iter().map(|period| 1e9 / *period as f64).sum();
            assert!(periods.len() > 1 && (all / hz - 1.0).abs() < 1e-4, "{hz} {periods:?}");
        }
    }

    #[test]
    fn no_two_clocks_are_in_step() {
        let mut periods = periods_ns(100_000);
        assert_eq!(periods.len(), 8);
        periods.sort_unstable();
        assert!(periods.windows(2).all(|two| two[1] as f64 > 1.01 * two[0] as f64), "{periods:?}");
    }
}
