//! Losses in bursts: a line that changes between a good and a bad state.

use super::conditions::BurstLoss;
use crate::random::Random;

/// State of the line (Gilbert-Elliott model).
#[derive(Clone, Debug, Default)]
pub(super) struct Bursts {
    is_bad: bool,
}

impl Bursts {
    /// Returns true if the next packet is lost.
    pub(super) fn lose(&mut self, loss: &BurstLoss, random: &mut Random) -> bool {
        let changes = if self.is_bad { recovery(loss) } else { failure(loss) };
        self.is_bad ^= random.unit() < changes;
        self.is_bad && loss.within.draw(random)
    }
}

/// Returns the probability that a bad line is good for the next packet.
fn recovery(loss: &BurstLoss) -> f64 {
    1.0 / loss.length.max(1.0)
}

/// Returns the probability that a good line is bad for the next packet, which makes the line bad
/// for `share / within` of all packets.
fn failure(loss: &BurstLoss) -> f64 {
    let bad = loss.share.value() / loss.within.value();
    // No share, or no loss while bad: the quotient is not a number.
    if bad.is_nan() { 0.0 } else { recovery(loss) * bad / (1.0 - bad).max(f64::MIN_POSITIVE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated_link::Probability;

    const PACKETS: u32 = 1_000_000;

    /// Returns the share of packets lost, and the mean length of the runs of lost packets.
    fn measured(share: f64, length: f64, within: f64) -> (f64, f64) {
        let [share, within] = [share, within].map(|value| Probability::new(value).expect("from 0 to 1"));
        let loss = BurstLoss { share, length, within };
        let (mut bursts, mut random) = (Bursts::default(), Random::from_seed(8));
        let (mut lost, mut runs, mut was_lost) = (0, 0, false);
        for _ in 0..PACKETS {
            let is_lost = bursts.lose(&loss, &mut random);
            lost += u32::from(is_lost);
            runs += u32::from(is_lost && !was_lost);
            was_lost = is_lost;
        }
        (f64::from(lost) / f64::from(PACKETS), f64::from(lost) / f64::from(runs.max(1)))
    }

    #[test]
    fn bursts_have_the_given_share_and_length() {
        for (share, length) in [(0.01, 10.0), (0.05, 3.0), (0.3, 50.0), (0.02, 1.0)] {
            let (found, run) = measured(share, length, 1.0);
            // The number of bursts varies like that of a Poisson process, and their length too.
            let bursts = share * f64::from(PACKETS) / length;
            let deviation = (2.0 / bursts).sqrt();
            assert!((found / share - 1.0).abs() < 4.0 * deviation, "{share} {length}: {found}");
            // With a length of 1, a new burst cannot follow directly.
            assert!((run / length - 1.0).abs() < 4.0 / bursts.sqrt(), "{share} {length}: {run}");
        }
    }

    #[test]
    fn a_bad_line_loses_only_a_part() {
        let (found, run) = measured(0.02, 20.0, 0.5);
        assert!((found / 0.02 - 1.0).abs() < 0.15, "{found}");
        // Half of the packets of a burst are lost: runs have two packets on average, or fewer.
        assert!((1.7..2.1).contains(&run), "{run}");
    }

    #[test]
    fn edge_shares_lose_nothing_or_nearly_everything() {
        assert_eq!(measured(0.0, 10.0, 1.0).0, 0.0);
        assert_eq!(measured(0.0, 10.0, 0.0).0, 0.0);
        assert!(measured(1.0, 10.0, 1.0).0 > 0.85, "after each burst, one packet passes");
    }
}
