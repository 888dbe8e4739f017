//! Two ways to do the same, timed in turns.

use std::time::{Duration, Instant};

/// Turns of each side; the results are medians.
const TURNS: usize = 9;

/// How long a turn lasts.
const TURN: Duration = Duration::from_millis(15);

#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Bytes a second, the median of our turns.
    pub ours_bytes_per_s: f64,
    /// Bytes a second, the median of their turns.
    pub theirs_bytes_per_s: f64,
    /// How many times as fast ours is: the median over the turns.
    pub ratio: f64,
    /// Ticks of the time stamp counter a byte of ours (0 where there is none).
    pub ours_cycles_per_byte: f64,
}

/// Times both, each of which does `ours_bytes` and `theirs_bytes` a call.
pub fn duel(
    mut ours: impl FnMut(),
    ours_bytes: usize,
    mut theirs: impl FnMut(),
    theirs_bytes: usize,
) -> Outcome {
    let (our_calls, their_calls) = (calls_of_a_turn(&mut ours), calls_of_a_turn(&mut theirs));
    let mut turns = [(0.0, 0.0, 0.0); TURNS];
    for turn in &mut turns {
        let ticks = ticks_now();
        let our_rate = rate(&mut ours, our_calls) * ours_bytes as f64;
        let ticks = ticks_now().wrapping_sub(ticks) as f64;
        let their_rate = rate(&mut theirs, their_calls) * theirs_bytes as f64;
        *turn = (
            our_rate,
            their_rate,
            ticks / (our_calls as f64 * ours_bytes as f64),
        );
    }
    Outcome {
        ours_bytes_per_s: median(turns.map(|turn| turn.0)),
        theirs_bytes_per_s: median(turns.map(|turn| turn.1)),
        ratio: median(turns.map(|turn| turn.0 / turn.1)),
        ours_cycles_per_byte: median(turns.map(|turn| turn.2)),
    }
}

fn rate(work: &mut impl FnMut(), calls: u64) -> f64 {
    let started = Instant::now();
    for _ in 0..calls {
        work();
    }
    calls as f64 / started.elapsed().as_secs_f64()
}

fn calls_of_a_turn(work: &mut impl FnMut()) -> u64 {
    let mut calls = 1;
    loop {
        let rate = rate(work, calls);
        if calls as f64 / rate >= TURN.as_secs_f64() / 4.0 {
            return ((rate * TURN.as_secs_f64()) as u64).max(1);
        }
        calls *= 2;
    }
}

fn median(mut turns: [f64; TURNS]) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[TURNS / 2]
}

#[cfg(target_arch = "x86_64")]
fn ticks_now() -> u64 {
    clock::ticks_now()
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks_now() -> u64 {
    0
}

#[cfg(target_arch = "x86_64")]
#[path = "ticks.rs"]
mod clock;
