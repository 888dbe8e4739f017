//! Time as benchmarks need it: the wall's, the thread's CPU's, and the CPU's own counter.
#![allow(unsafe_code)] // The instruction that reads the time stamp counter.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Slices of a measurement; its result is their median.
const SLICES: usize = 7;

/// How long a slice lasts.
const SLICE: Duration = Duration::from_millis(28);

/// What was seen of some work, over all slices but for the medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Calls a second, by the wall clock: the median of the slices.
    pub(super) calls_per_s: f64,
    /// Ticks of the time stamp counter a call, the median; `None` where there is none.
    pub(super) ticks_per_call: Option<f64>,
    /// Calls in all slices.
    pub(super) calls: u64,
    /// CPU time of this thread in all slices.
    pub(super) cpu_s: f64,
}

/// Calls `work` over and over for about a fifth of a second, after some calls that aren't counted.
pub(super) fn measure(mut work: impl FnMut()) -> Measured {
    let calls = calls_of_a_slice(&mut work);
    let mut seconds = [0.0; SLICES];
    let mut ticks = [0.0; SLICES];
    let cpu_before = thread_cpu_s();
    for (seconds, ticks) in seconds.iter_mut().zip(&mut ticks) {
        let (started, ticks_before) = (Instant::now(), ticks_now());
        for _ in 0..calls {
            work();
        }
        let ticks_taken = ticks_now()
            .zip(ticks_before)
            .map(|(now, before)| now.wrapping_sub(before));
        *seconds = started.elapsed().as_secs_f64();
        *ticks = ticks_taken.unwrap_or_default() as f64;
    }
    Measured {
        calls_per_s: calls as f64 / median(seconds),
        ticks_per_call: ticks_now().map(|_| median(ticks) / calls as f64),
        calls: calls * SLICES as u64,
        cpu_s: thread_cpu_s() - cpu_before,
    }
}

/// CPU time of this thread.
pub(super) fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Doubles until a call's time can be told, which warms the CPU up, too.
fn calls_of_a_slice(work: &mut impl FnMut()) -> u64 {
    let mut calls = 1_u64;
    loop {
        let started = Instant::now();
        for _ in 0..calls {
            work();
        }
        let taken = started.elapsed();
        if taken >= SLICE / 8 || calls >= 1 << 30 {
            let wanted = calls as f64 * SLICE.as_secs_f64() / taken.as_secs_f64().max(1e-9);
            return (wanted as u64).max(1);
        }
        calls *= 2;
    }
}

fn median(mut slices: [f64; SLICES]) -> f64 {
    slices.sort_by(f64::total_cmp);
    slices[SLICES / 2]
}

#[cfg(target_arch = "x86_64")]
fn ticks_now() -> Option<u64> {
    // SAFETY: every x86-64 CPU has the counter.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks_now() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_known_length_is_measured_as_that_long() {
        let pause = Duration::from_millis(4);
        let mut calls = 0;
        let measured = measure(|| {
            calls += 1;
            std::thread::sleep(pause);
        });
        // A sleep takes at least what it was asked for, so there is a bound on one side only; and
        // it costs next to no CPU time, on the other.
        assert!(measured.calls_per_s <= 250.0, "{measured:?}");
        assert!(
            measured.calls >= 7 && measured.calls < calls,
            "{measured:?}"
        );
        assert!(
            measured.cpu_s < measured.calls as f64 * 0.004 / 2.0,
            "{measured:?}"
        );
        assert_eq!(
            measured.ticks_per_call.is_some(),
            cfg!(target_arch = "x86_64")
        );
    }
}
