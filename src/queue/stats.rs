//! Counters of a served device.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Payload bytes copied between buffers, beyond receive, storage and send.
    pub copied_bytes: AtomicU64,
}

impl Stats {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// The counters as `status --json` shows them (cli.md).
    pub fn to_json(&self) -> Value {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
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
