//! Shares that add up.

use std::cmp::Reverse;

/// Shares of a whole in tenths of a percent that add up to 1000 exactly: what rounding down loses goes to those that lost most,
/// the first among equals. All 0 if the whole is.
///
/// A thousand times the sum of `parts` must fit into 128 bits, as that of 2^50 times of 64 bits does.
pub fn shares(parts: &[u128]) -> Vec<u64> {
    let whole: u128 = parts.iter().sum();
    if whole == 0 {
        return vec![0; parts.len()];
    }
    let mut shares: Vec<u64> =
        parts.iter().map(|part| u64::try_from(part * 1_000 / whole).unwrap_or(1_000)).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| Reverse(parts[*at] * 1_000 % whole));
    let missing = 1_000 - shares.iter().sum::<u64>();
    for at in order.into_iter().take(usize::try_from(missing).unwrap_or(0)) {
        shares[at] += 1;
    }
    shares
}

/// `part` of `whole` in tenths of a percent, rounded by itself and never above 1000. The same bound as for [`shares`].
pub fn tenths(part: u128, whole: u128) -> u64 {
    if whole == 0 {
        return 0;
    }
    u64::try_from((part.min(whole) * 1_000 + whole / 2) / whole).unwrap_or(1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_rounding_loses_goes_to_those_that_lost_most() {
        assert_eq!(shares(&[1, 1, 1]), [334, 333, 333]);
        assert_eq!(shares(&[1, 0, 2]), [333, 0, 667]);
        assert_eq!(shares(&[0, 0]), [0, 0]);
        assert_eq!((tenths(1, 3), tenths(5, 3), tenths(1, 0)), (333, 1_000, 0));
    }

    proptest! {
        #[test]
        fn shares_add_up(parts in prop::collection::vec(any::<u64>(), 0..20)) {
            let parts: Vec<u128> = parts.into_iter().map(u128::from).collect();
            let expected = if parts.iter().sum::<u128>() == 0 { 0 } else { 1_000 };
            prop_assert_eq!(shares(&parts).iter().sum::<u64>(), expected);
        }
    }
}
