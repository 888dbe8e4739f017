//! Counters of a served device.

use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// Classes of the depth histogram.
const DEPTH_CLASSES: usize = 8;

/// Counters since the device was opened. Cheap enough for every request.
#[derive(Debug, Default)]
pub struct Stats {
    /// Requests by kind.
    pub reads: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Trims.
    pub trims: AtomicU64,
    /// Write-zeroes.
    pub zeroes: AtomicU64,
    /// Cache hints.
    pub caches: AtomicU64,
    /// Requests that ended in an error.
    pub errors: AtomicU64,
    /// Payload bytes read.
    pub bytes_read: AtomicU64,
    /// Payload bytes written.
    pub bytes_written: AtomicU64,
    /// Requests that waited for an earlier one over the same sectors.
    pub backlog_events: AtomicU64,
    /// Requests by how many were in flight when they began: 1, 2 to 3, 4 to 7, … 128 and more.
    pub depths: [AtomicU64; DEPTH_CLASSES],
    /// Payload bytes copied between buffers, beyond receive, storage and send.
    pub copied_bytes: AtomicU64,
}

impl Stats {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a request that begins as the `depth`th in flight (1 or more).
    pub fn began_at(&self, depth: usize) {
        let class = depth.max(1).ilog2() as usize;
        Self::add(&self.depths[class.min(DEPTH_CLASSES - 1)], 1);
    }

    /// The counters as `status --json` shows them (cli.md).
    pub fn to_json(&self) -> Value {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let depths: Map<String, Value> = (0..)
            .zip(&self.depths)
            .map(|(class, count)| ((1u32 << class).to_string(), get(count).into()))
            .collect();
        // Every request that moves data goes through the CPU's ciphers: the one engine there is.
        let encrypted = get(&self.reads) + get(&self.writes) + get(&self.zeroes);
        json!({
            "engine_requests": { "cpu": encrypted },
            "fallbacks": {},
            "depth_histogram": depths,
            "requests": {
                "read": get(&self.reads),
                "write": get(&self.writes),
                "flush": get(&self.flushes),
                "trim": get(&self.trims),
                "zero": get(&self.zeroes),
                "cache": get(&self.caches),
                "error": get(&self.errors),
            },
            "bytes_read": get(&self.bytes_read),
            "bytes_written": get(&self.bytes_written),
            "backlog_events": get(&self.backlog_events),
            "copied_bytes": get(&self.copied_bytes),
        })
    }
}
