//! A volume over its storage, as front ends see it.

use std::io;
use std::sync::Arc;

use super::{Completions, Operation, Request, Stats};
use crate::storage::{Extent, Storage};
use crate::units::SectorSize;
use crate::volume::{Volume, VolumeAbout};

/// How a device is served.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// Refuse everything that writes.
    pub read_only: bool,
    /// Pass trims down, and tell holes from data.
    pub allow_discards: bool,
}

/// A served volume. Shared by every connection and front end.
#[derive(Debug)]
pub struct Device {}

impl Device {
    /// The device of `volume` over `storage`, which holds its data area.
    pub fn new(_volume: Volume, _storage: Arc<dyn Storage>, _options: DeviceOptions) -> Arc<Self> {
        todo!()
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }

    /// The sector grid; requests off it work, and cost a read-modify-write.
    pub fn sector_size(&self) -> SectorSize {
        todo!()
    }

    /// Whether it refuses writes.
    pub fn read_only(&self) -> bool {
        todo!()
    }

    /// Whether trims reach the storage: discards are allowed and the storage can free.
    pub fn can_trim(&self) -> bool {
        todo!()
    }

    /// What volume it is.
    pub fn about(&self) -> &VolumeAbout {
        todo!()
    }

    /// Its counters.
    pub fn stats(&self) -> &Stats {
        todo!()
    }

    /// A request with its memory. The range must lie inside the device and, for reads and writes,
    /// be at most `limits::REQUEST_BYTES_MAX` long: front ends check, with their own errno. Waits
    /// while the process's buffers are all out.
    pub fn prepare(
        &self,
        _operation: Operation,
        _offset_bytes: u64,
        _len_bytes: u32,
        _cookie: u64,
    ) -> Request {
        todo!()
    }

    /// Runs the request here and now if it needs no waiting for a device (cached reads); `None`
    /// leaves it untouched, to be submitted.
    pub fn run_without_waiting(&self, _request: &mut Request) -> Option<io::Result<()>> {
        todo!()
    }

    /// Runs the request to its end on this thread.
    pub fn run(&self, _request: &mut Request) -> io::Result<()> {
        todo!()
    }

    /// Hands the request to a worker, which calls `completions` once. Many may be in flight; they
    /// may end in any order. Overlapping requests are ordered as far as data integrity needs it.
    pub fn submit(self: &Arc<Self>, _request: Request, _completions: Arc<dyn Completions>) {
        todo!()
    }

    /// The extents of a range, in order and without gaps, at most `count_max` of them (so it may
    /// end early). Without discards everything is data.
    pub fn extents(
        &self,
        _offset_bytes: u64,
        _len_bytes: u64,
        _count_max: usize,
    ) -> io::Result<Vec<Extent>> {
        todo!()
    }
}
