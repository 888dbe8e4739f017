//! Whether a lane that has nothing to do looks for its client's next request for a moment before
//! it sleeps. No threads, no I/O: the lane tells when its turns began.
//!
//! Whether that pays depends on the machine (what a sleep and a wake-up cost), on the client, and
//! on who else needs the core, so it is tried: some turns with and some without, and whichever
//! made turns shorter is kept for a while. A client with pauses between its requests never gets
//! there: its turns are long, and long turns neither count nor spin.

use std::time::{Duration, Instant};

use crate::limits;

/// Turns of each half of a trial.
const TRIAL_TURNS: u32 = 64;
/// Turns for which a trial's outcome is kept.
const KEPT_TURNS: u32 = 8192;
/// A longer turn is a pause of the client's. Ten times the longest spin.
const TURN_MAX: Duration = Duration::from_micros(10 * limits::SPIN_MICROSECONDS_MAX);
/// Spinning costs CPU time: it has to make turns shorter by a tenth.
const GAIN_TENTHS_MIN: u32 = 1;

/// One lane's choice.
#[derive(Debug, Default)]
pub(super) struct Spin {
    phase: Phase,
    /// Turns of this phase, and the time they took.
    turns: u32,
    spent: Duration,
    last: Option<Instant>,
    /// The last turn was short.
    warm: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Turns without spinning.
    #[default]
    Without,
    /// Turns with it, after this much without.
    With(Duration),
    /// Decided.
    Kept(bool),
}

impl Spin {
    /// How long to look for the next request before sleeping.
    pub(super) fn budget(&self) -> Option<Duration> {
        let spins = matches!(self.phase, Phase::With(_) | Phase::Kept(true));
        (spins && self.warm).then_some(Duration::from_micros(limits::SPIN_MICROSECONDS_MAX))
    }

    /// Notes that a request came at `now` to the lane that had none.
    pub(super) fn turned(&mut self, now: Instant) {
        let turn = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
        let Some(turn) = turn.filter(|turn| *turn <= TURN_MAX) else {
            self.warm = false;
            return;
        };
        self.warm = true;
        self.turns += 1;
        self.spent += turn;
        let (phase, turns) = match self.phase {
            Phase::Without => (Phase::With(self.spent), TRIAL_TURNS),
            Phase::With(without) => {
                let pays = self.spent * 10 < without * (10 - GAIN_TENTHS_MIN);
                (Phase::Kept(pays), TRIAL_TURNS)
            }
            Phase::Kept(_) => (Phase::Without, KEPT_TURNS),
        };
        if self.turns >= turns {
            (self.phase, self.turns, self.spent) = (phase, 0, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of a client that comes after `slept`, or after `spun` where the lane spins; how many
    /// of the last thousand spun.
    fn spinning_turns(slept: u64, spun: u64) -> usize {
        let mut spin = Spin::default();
        let mut now = Instant::now();
        let mut spins = Vec::new();
        for _ in 0..5000 {
            let spinning = spin.budget().is_some();
            now += Duration::from_micros(if spinning { spun } else { slept });
            spin.turned(now);
            spins.push(spinning);
        }
        spins[4000..].iter().filter(|spun| **spun).count()
    }

    #[test]
    fn it_spins_where_that_makes_turns_shorter() {
        assert_eq!(spinning_turns(60, 20), 1000);
        assert_eq!(spinning_turns(20, 20), 0);
        assert_eq!(spinning_turns(20, 19), 0, "too little for the CPU time");
        assert_eq!(spinning_turns(20, 40), 0);
    }

    #[test]
    fn a_client_with_pauses_costs_no_spin() {
        assert_eq!(spinning_turns(1000, 1000), 0);
    }

    #[test]
    fn a_pause_ends_spinning_until_the_client_is_back() {
        let mut spin = Spin::default();
        let mut now = Instant::now();
        while spin.budget().is_none() {
            now += Duration::from_micros(50);
            spin.turned(now);
        }
        now += Duration::from_secs(1);
        spin.turned(now);
        assert!(spin.budget().is_none());
        now += Duration::from_micros(50);
        spin.turned(now);
        assert!(spin.budget().is_some());
    }
}
