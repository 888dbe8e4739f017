//! The CPU's own counter.
#![allow(unsafe_code)] // The instruction that reads it.

pub fn ticks_now() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}
