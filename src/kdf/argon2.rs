//! Argon2 on memory that is asked for first: what isn't there is an error, never an abort or the
//! kernel's OOM killer.
#![allow(unsafe_code)] // The block mapping below; nothing else.

use std::ptr::NonNull;
use std::slice;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use rustix::mm;

use super::memory;
use crate::error::{Error, Result};
use crate::limits;

/// Argon2's three costs as a key slot states them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Passes over the memory.
    pub(super) time: u32,
    /// Memory in KiB.
    pub(super) memory_kib: u32,
    /// Lanes, each a thread where there are CPUs.
    pub(super) lanes: u32,
}

/// Derives `out` with Argon2id (`id`) or Argon2i, version 0x13, on one thread a lane, as many as
/// there are CPUs.
///
/// Errors: `Device` for costs or a salt out of range; `Memory` for memory or threads that can't be
/// had.
pub(super) fn derive(
    id: bool,
    cost: Cost,
    passphrase: &[u8],
    salt: &[u8],
    out: &mut [u8],
) -> Result<()> {
    cost.check()?;
    let algorithm = if id {
        Algorithm::Argon2id
    } else {
        Algorithm::Argon2i
    };
    let params = Params::new(cost.memory_kib, cost.time, cost.lanes, Some(out.len()))
        .map_err(|error| Error::device("Argon2 parameters out of range").caused_by(error))?;

    memory::check("Argon2", u64::from(cost.memory_kib) << 10)?;
    let mut blocks = Blocks::map(params.block_count())?;
    let pool = threads(cost.lanes)
        .map_err(|error| Error::memory("threads for Argon2 can't be started").caused_by(error))?;
    let argon2 = Argon2::new(algorithm, Version::V0x13, params);
    let memory = blocks.as_mut();
    pool.install(|| argon2.hash_password_into_with_memory(passphrase, salt, out, memory))
        .map_err(|error| Error::device("Argon2 parameters out of range").caused_by(error))
}

impl Cost {
    fn check(self) -> Result<()> {
        let Self {
            time,
            memory_kib,
            lanes,
        } = self;
        let work_kib = u64::from(time) * u64::from(memory_kib.max(limits::ARGON2_PASS_KIB_MIN));
        let out_of_range = if lanes == 0 || lanes > limits::ARGON2_LANES_MAX {
            format!(
                "{lanes} lanes is out of range (1 to {})",
                limits::ARGON2_LANES_MAX
            )
        } else if memory_kib < 8 * lanes || memory_kib > limits::ARGON2_MEMORY_KIB_MAX {
            format!(
                "{memory_kib} KiB on {lanes} lanes is out of range ({} to {} KiB)",
                8 * lanes,
                limits::ARGON2_MEMORY_KIB_MAX
            )
        } else if time == 0 {
            "0 passes is out of range".to_owned()
        } else if work_kib > limits::ARGON2_WORK_KIB_MAX {
            format!(
                "{time} passes over {memory_kib} KiB is over the limit of {} KiB in all",
                limits::ARGON2_WORK_KIB_MAX
            )
        } else {
            return Ok(());
        };
        Err(Error::device(format!("Argon2 with {out_of_range}")))
    }
}

/// A pool for the lanes alone: rayon's global one may be busy, or may not have been startable.
/// Where the process may not have that many threads, one does all the work.
fn threads(lanes: u32) -> std::result::Result<ThreadPool, ThreadPoolBuildError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = |threads| {
        // A lane needs a few blocks of 1 KiB on its stack.
        ThreadPoolBuilder::new()
            .num_threads(threads)
            .stack_size(256 << 10)
            .build()
    };
    pool(cpus.min(lanes as usize)).or_else(|_| pool(1))
}

/// Argon2's memory: mapped zeroed, out of core dumps, wiped when dropped.
struct Blocks {
    start: NonNull<Block>,
    count: usize,
}

impl Blocks {
    fn map(count: usize) -> Result<Self> {
        let bytes = count * Block::SIZE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                mm::MapFlags::PRIVATE,
            )
        }
        .map_err(|error| {
            Error::memory(format!(
                "key slot needs {} for Argon2, and the system refuses them",
                memory::spelled(bytes as u64)
            ))
            .caused_by(error)
            .hint("free memory, or use another key slot")
        })?;
        // SAFETY: the range is exactly the mapping just made. Huge pages are a wish: they spare
        // Argon2's scattered reads most of their TLB misses.
        unsafe {
            let _ = mm::madvise(start, bytes, mm::Advice::LinuxDontDump);
            let _ = mm::madvise(start, bytes, mm::Advice::LinuxHugepage);
        }
        let start = NonNull::new(start.cast()).expect("mmap never returns null");
        Ok(Self { start, count })
    }
}

impl AsMut<[Block]> for Blocks {
    fn as_mut(&mut self) -> &mut [Block] {
        // SAFETY: the mapping holds `count` blocks, is aligned to a page and so to a block, was
        // zeroed by the kernel (all zeros is a valid block), and is ours; `&mut self` makes the
        // access exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let bytes = self.count * Block::SIZE;
        // SAFETY: the mapping was made by `map` with this length and is used no more. The call
        // that takes it away may read it as far as the compiler knows, so the zeros are written.
        unsafe {
            self.start.as_ptr().cast::<u8>().write_bytes(0, bytes);
            std::hint::black_box(self.start.as_ptr());
            let _ = mm::munmap(self.start.as_ptr().cast(), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the reference implementation's own tests (phc-winner-argon2, src/test.c,
    /// version 0x13), one lane and two.
    #[test]
    fn reference_vectors() {
        let derived = |id, time, memory_kib, lanes, passphrase: &[u8], salt: &[u8]| {
            let mut out = [0; 32];
            let cost = Cost {
                time,
                memory_kib,
                lanes,
            };
            derive(id, cost, passphrase, salt, &mut out).expect("small costs");
            hex::encode(out)
        };
        assert_eq!(
            derived(false, 2, 1 << 16, 1, b"password", b"somesalt"),
            "c1628832147d9720c5bd1cfd61367078729f6dfb6f8fea9ff98158e0d7816ed0"
        );
        assert_eq!(
            derived(false, 2, 1 << 8, 2, b"password", b"somesalt"),
            "4ff5ce2769a1d7f4c8a491df09d41a9fbe90e5eb02155a13e4c01e20cd4eab61"
        );
        assert_eq!(
            derived(true, 2, 1 << 16, 1, b"password", b"somesalt"),
            "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7"
        );
        assert_eq!(
            derived(true, 2, 1 << 8, 2, b"password", b"somesalt"),
            "6d093c501fd5999645e0ea3bf620d7b8be7fd2db59c20d9fff9539da2bf57037"
        );
        assert_eq!(
            derived(true, 2, 1 << 16, 1, b"password", b"diffsalt"),
            "bdf32b05ccc42eb15d58fd19b1f856b113da1e9a5874fdcc544308565aa8141c"
        );
    }

    /// By libargon2 (20190702): memory that no lane's slice divides, lanes that don't, 64 bytes out,
    /// the empty passphrase.
    #[test]
    fn libargon2_at_odd_costs() {
        let salt: Vec<u8> = (0..32).collect();
        for (id, cost, passphrase, expected) in [
            (
                true,
                Cost {
                    time: 3,
                    memory_kib: 100,
                    lanes: 3,
                },
                &b"pass\0word"[..],
                "c3e7779cb783827b690138b34401405fc9560b5c4a83a67a518968436ee05a7f\
                 1467b96ebea5f72bb436cdec5d90055896c8fe3006083c8fac0f2a11b7f8c19e",
            ),
            (
                false,
                Cost {
                    time: 1,
                    memory_kib: 1037,
                    lanes: 4,
                },
                &b""[..],
                "157d7d5c242eafb2e1553cfc80d168d5c446d7c585eaaa26a94fc5db7f5c43c2\
                 a35b51a96cff79848d5202c4a6a9c8eaf7d4cc5efb55efe3dedee8aa7fd0b75f",
            ),
        ] {
            let mut out = [0; 64];
            derive(id, cost, passphrase, &salt, &mut out).expect("small costs");
            assert_eq!(hex::encode(out), expected);
        }
    }

    #[test]
    fn a_short_salt_is_refused() {
        let cost = Cost {
            time: 1,
            memory_kib: 32,
            lanes: 1,
        };
        let error = derive(true, cost, b"", b"1234567", &mut [0; 16]).expect_err("too short");
        assert_eq!(error.kind(), crate::error::ErrorKind::Device);
    }
}
