//! What lets a server live through the memory pressure that its own device's writers make: the
//! kernel frees memory by writing to the device, so the server must not wait for free memory.

use std::fs;
use std::sync::Arc;

use rustix::mm::MlockAllFlags;
use rustix::process::{DumpableBehavior, Resource, getrlimit};

use crate::queue::{Device, Operation};

/// Bit of CAP_IPC_LOCK in a capability set. Source: linux/capability.h.
const CAP_IPC_LOCK: u32 = 14;
/// Sizes of requests that get buffers beforehand, in bytes, and how many each.
const RESERVED: [(u32, usize); 4] = [(4 << 10, 64), (64 << 10, 32), (256 << 10, 16), (1 << 20, 8)];

/// Keeps this process's memory from debuggers and core files. For every server that holds a key.
pub(crate) fn hide_memory() {
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Before any thread starts, since threads inherit it: memory for this process is never freed by
/// writing to a device that it may itself be serving; and it isn't the one to be killed when
/// memory runs out. Does what this process is allowed to (CAP_SYS_RESOURCE), and says nothing.
pub(crate) fn before_threads() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Once the device stands: its code and buffers stay in memory, and enough buffers are there
/// before they are needed.
pub(crate) fn lock_memory(device: &Arc<Device>) {
    // Past the limit, a process without the capability would fail to allocate at all.
    if may_lock_everything() {
        let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        let _ = rustix::mm::mlockall(all);
    }
    reserve_buffers(device);
}

fn may_lock_everything() -> bool {
    if getrlimit(Resource::Memlock).current.is_none() {
        return true;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set & (1 << CAP_IPC_LOCK) != 0)
}

/// Touches buffers and gives them back to the device's pool, which keeps them.
fn reserve_buffers(device: &Arc<Device>) {
    let mut taken = Vec::new();
    for (len_bytes, count) in RESERVED {
        if u64::from(len_bytes) > device.size_bytes() {
            continue;
        }
        for _ in 0..count {
            let mut request = device.prepare(Operation::Read, 0, len_bytes, 0);
            request.payload_mut().fill(0);
            taken.push(request);
        }
    }
}
