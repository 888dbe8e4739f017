//! Time as benchmarks need it: the wall's, the thread's CPU's, and the CPU's own counter.
#![allow(unsafe_code)] // The instruction that reads the time stamp counter.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How long a slice lasts: well under what a scheduler gives one thread at a time, so that most
/// slices are free of others' work.
const SLICE_S: f64 = 0.001;

/// How long a measurement lasts, and how many slices it has at least where a call is longer.
const MEASUREMENT: Duration = Duration::from_millis(200);
const SLICES_MIN: usize = 7;

/// What was seen of some work, over all slices but for the medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Calls a second of this thread's CPU time: the median of the slices.
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
    let (mut seconds, mut ticks) = (Vec::new(), Vec::new());
    let started = Instant::now();
    while seconds.len() < SLICES_MIN || started.elapsed() < MEASUREMENT {
        let (cpu_before, ticks_before) = (thread_cpu_s(), ticks_now());
        for _ in 0..calls {
            work();
        }
        ticks.extend(
            ticks_now()
                .zip(ticks_before)
                .map(|(now, before)| now.wrapping_sub(before) as f64),
        );
        seconds.push(thread_cpu_s() - cpu_before);
    }
    Measured {
        calls: calls * seconds.len() as u64,
        cpu_s: seconds.iter().sum(),
        calls_per_s: calls as f64 / median(seconds).unwrap_or(f64::NAN),
        ticks_per_call: median(ticks).map(|ticks| ticks / calls as f64),
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
        let (started, cpu_before) = (Instant::now(), thread_cpu_s());
        for _ in 0..calls {
            work();
        }
        let taken_s = thread_cpu_s() - cpu_before;
        let long_enough = taken_s >= SLICE_S / 2.0 || started.elapsed() >= MEASUREMENT;
        if long_enough || calls >= 1 << 30 {
            return ((calls as f64 * SLICE_S / taken_s.max(SLICE_S / 64.0)) as u64).max(1);
        }
        calls *= 2;
    }
}

fn median(mut slices: Vec<f64>) -> Option<f64> {
    slices.sort_by(f64::total_cmp);
    slices.get(slices.len() / 2).copied()
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
        let mut calls = 0;
        let measured = measure(|| {
            calls += 1;
            // The clock itself is read in less than a hundredth of this.
            let started = thread_cpu_s();
            while thread_cpu_s() - started < 0.0002 {}
        });
        assert!(
            (2500.0..=5000.0).contains(&measured.calls_per_s),
            "{measured:?}"
        );
        assert!(
            measured.calls >= 7 && measured.calls < calls,
            "{measured:?}"
        );
        let per_cpu_s = measured.calls as f64 / measured.cpu_s;
        assert!((2500.0..=5000.0).contains(&per_cpu_s), "{measured:?}");
        assert_eq!(
            measured.ticks_per_call.is_some(),
            cfg!(target_arch = "x86_64")
        );
    }
}
