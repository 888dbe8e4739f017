//! The device against a plain `Vec<u8>`: any sequence of requests of any offset and length, alone
//! and from several threads at once, over every sector size; and faults below.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::queue::{Completions, Device, DeviceOptions, Operation, Request};
use nbdcrypt::storage::{Event, FaultyStorage, MemoryStorage, Storage};
use nbdcrypt::units::SectorSize;
use nbdcrypt::volume::{Segment, SegmentKind, Volume, VolumeAbout};
use proptest::prelude::*;

const SIZE: u64 = 64 << 10;
const DATA_OFFSET: u64 = 8192;

/// Three segments: two encrypted (unlike each other), one plain between them.
fn volume(sector: SectorSize) -> Volume {
    let crypt = |spec: &str, key: &[u8]| {
        let spec = CipherSpec::parse(spec).unwrap();
        let cipher = SectorCipher::new(&spec, key, sector, IvOptions::default()).unwrap();
        SegmentKind::Crypt(Arc::new(cipher))
    };
    let key: Vec<u8> = (0..64u8).map(|i| i.wrapping_mul(7) + 1).collect();
    let segment = |start_bytes, len_bytes, kind| Segment {
        start_bytes,
        len_bytes,
        storage_offset_bytes: DATA_OFFSET + start_bytes,
        kind,
    };
    Volume {
        segments: vec![
            segment(0, 20 << 10, crypt("aes-xts-plain64", &key)),
            segment(20 << 10, 12 << 10, SegmentKind::Linear),
            segment(
                32 << 10,
                32 << 10,
                crypt("aes-cbc-essiv:sha256", &key[..32]),
            ),
        ],
        size_bytes: SIZE,
        sector_size: sector,
        about: VolumeAbout::default(),
    }
}

fn storage() -> Arc<MemoryStorage> {
    Arc::new(MemoryStorage::new(vec![0; (DATA_OFFSET + SIZE) as usize]))
}

fn device(sector: SectorSize, storage: Arc<dyn Storage>) -> Arc<Device> {
    let options = DeviceOptions {
        read_only: false,
        allow_discards: true,
        ..DeviceOptions::default()
    };
    Device::new(volume(sector), storage, options)
}

fn read(device: &Device, offset: u64, len: u32) -> io::Result<Vec<u8>> {
    let mut request = device.prepare(Operation::Read, offset, len, 0);
    device.run(&mut request)?;
    Ok(request.payload().to_vec())
}

fn write(device: &Device, offset: u64, data: &[u8], fua: bool) -> io::Result<()> {
    let len = data.len() as u32;
    let mut request = device.prepare(Operation::Write { fua }, offset, len, 0);
    request.payload_mut().copy_from_slice(data);
    device.run(&mut request)
}

fn run(device: &Device, operation: Operation, offset: u64, len: u32) -> io::Result<()> {
    device.run(&mut device.prepare(operation, offset, len, 0))
}

fn sector_sizes() -> impl Strategy<Value = SectorSize> {
    prop::sample::select(vec![512, 1024, 2048, 4096]).prop_map(|n| SectorSize::new(n).unwrap())
}

fn ranges() -> impl Strategy<Value = (u64, u64)> {
    let lens = prop_oneof![1u64..64, 500u64..1100, 4000u64..4200, 1u64..40_000];
    (0..SIZE, lens).prop_map(|(offset, len)| (offset, len.min(SIZE - offset)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_sequence_equals_a_vec(
        sector in sector_sizes(),
        steps in prop::collection::vec((0u8..10, ranges(), any::<u8>()), 1..40),
    ) {
        let storage = storage();
        let device = device(sector, storage.clone());
        let mut model = vec![0; SIZE as usize];
        run(&device, Operation::WriteZeroes { fua: false }, 0, SIZE as u32).unwrap();
        for (kind, (offset, len), fill) in steps {
            let range = offset as usize..(offset + len) as usize;
            match kind {
                0..=3 => {
                    let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ fill).collect();
                    write(&device, offset, &data, kind == 0).unwrap();
                    model[range].copy_from_slice(&data);
                }
                4 => {
                    run(&device, Operation::WriteZeroes { fua: fill & 1 == 1 }, offset, len as u32).unwrap();
                    model[range].fill(0);
                }
                5 => {
                    // What a trimmed sector reads as is unspecified; the partial ones stay.
                    run(&device, Operation::Trim { fua: false }, offset, len as u32).unwrap();
                    let now = read(&device, 0, SIZE as u32).unwrap();
                    let size = sector.bytes();
                    for at in (range.start.next_multiple_of(size)..range.end).step_by(size) {
                        if at + size <= range.end {
                            model[at..at + size].copy_from_slice(&now[at..at + size]);
                        }
                    }
                }
                _ => prop_assert_eq!(read(&device, offset, len as u32).unwrap(), &model[range]),
            }
        }
        prop_assert_eq!(read(&device, 0, SIZE as u32).unwrap(), model);
    }
}

/// Collects completions.
struct Done(Mutex<Sender<(Request, io::Result<()>)>>);

impl Completions for Done {
    fn complete(&self, request: Request, result: io::Result<()>) {
        let _ = self.0.lock().unwrap().send((request, result));
    }
}

/// Writers that never share a byte but share nearly every sector, and readers beside them: each
/// byte ends as its own writer left it, and no read ever shows another value.
#[test]
fn neighbours_in_a_sector_never_undo_each_other() {
    for size in [512, 4096] {
        let sector = SectorSize::new(size).unwrap();
        let slow = FaultyStorage::new(storage());
        slow.delay_each(Duration::from_micros(20));
        let device = device(sector, Arc::new(slow));
        run(
            &device,
            Operation::WriteZeroes { fua: false },
            0,
            SIZE as u32,
        )
        .unwrap();
        const STRIDE: u64 = 100;
        const WRITERS: u64 = 4;
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let device = &device;
                scope.spawn(move || {
                    let (sender, receiver) = channel();
                    let done: Arc<Done> = Arc::new(Done(Mutex::new(sender)));
                    for round in 1..=20u8 {
                        let mut sent = 0;
                        for block in 0..SIZE / STRIDE {
                            if block % WRITERS != writer
                                || block * STRIDE / size % 5 != u64::from(round) % 5
                            {
                                continue;
                            }
                            let operation = Operation::Write { fua: false };
                            let mut request =
                                device.prepare(operation, block * STRIDE, STRIDE as u32, 0);
                            request.payload_mut().fill(round);
                            device.submit(request, done.clone());
                            sent += 1;
                        }
                        for _ in 0..sent {
                            receiver.recv().unwrap().1.unwrap();
                        }
                        for block in (writer..SIZE / STRIDE).step_by(WRITERS as usize) {
                            let seen = read(device, block * STRIDE, STRIDE as u32).unwrap();
                            let want = (1..=round)
                                .rev()
                                .find(|r| u64::from(*r) % 5 == block * STRIDE / size % 5)
                                .unwrap_or(0);
                            assert!(seen.iter().all(|b| *b == want), "block {block}: {seen:?}");
                        }
                    }
                });
            }
        });
    }
}

/// Requests of one submitter over the same bytes run in the order they were submitted.
#[test]
fn overlapping_requests_keep_their_order() {
    let slow = FaultyStorage::new(storage());
    slow.delay_each(Duration::from_micros(200));
    let device = device(SectorSize::MIN, Arc::new(slow));
    let (sender, receiver) = channel();
    let done: Arc<Done> = Arc::new(Done(Mutex::new(sender)));
    for round in 0..100u8 {
        let mut request = device.prepare(Operation::Write { fua: false }, 1000, 700, 0);
        request.payload_mut().fill(round);
        device.submit(request, done.clone());
        let request = device.prepare(Operation::Read, 1100, 50, u64::from(round) + 1);
        device.submit(request, done.clone());
    }
    for _ in 0..200 {
        let (request, result) = receiver.recv().unwrap();
        result.unwrap();
        if request.operation == Operation::Read {
            let want = request.cookie as u8 - 1;
            assert!(
                request.payload().iter().all(|b| *b == want),
                "{:?}",
                request.payload()
            );
        }
    }
}

/// Storage is as deep as the submitter asks, not one request at a time.
#[test]
fn many_requests_wait_below_at_once() {
    let slow = Arc::new(FaultyStorage::new(storage()));
    slow.delay_each(Duration::from_millis(20));
    let device = device(SectorSize::MIN, slow.clone());
    let (sender, receiver) = channel();
    let done: Arc<Done> = Arc::new(Done(Mutex::new(sender)));
    let start = Instant::now();
    for i in 0..32 {
        let mut request = device.prepare(Operation::Read, i * 1024, 512, i);
        assert!(device.run_without_waiting(&mut request).is_none());
        device.submit(request, done.clone());
    }
    for _ in 0..32 {
        receiver.recv().unwrap().1.unwrap();
    }
    assert!(
        slow.in_flight_max() >= 24,
        "{} at once",
        slow.in_flight_max()
    );
    assert!(start.elapsed() < Duration::from_millis(32 * 20 / 4));
}

/// A fault below reaches exactly the requests that met it.
#[test]
fn a_fault_reaches_exactly_the_request_it_hit() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    let device = device(SectorSize::MIN, faulty.clone());
    faulty.fail_reads(DATA_OFFSET + 5120..DATA_OFFSET + 5632, libc::EIO);
    faulty.fail_writes(DATA_OFFSET + 9216..DATA_OFFSET + 9728, libc::ENOSPC);
    let errno = |result: io::Result<_>| result.map(|_: Vec<u8>| ()).unwrap_err().raw_os_error();
    assert_eq!(errno(read(&device, 5000, 200)), Some(libc::EIO));
    assert_eq!(errno(read(&device, 0, 65536)), Some(libc::EIO));
    read(&device, 0, 5120).unwrap();
    read(&device, 5632, 4096).unwrap();
    let wrote = |offset| write(&device, offset, &[1; 100], false).map(|()| Vec::new());
    assert_eq!(errno(wrote(9300)), Some(libc::ENOSPC));
    // A partial write of a sector that can't be read fails and leaves it untouched.
    assert_eq!(errno(wrote(5200)), Some(libc::EIO));
    wrote(0).unwrap();
    faulty.heal();
    wrote(5200).unwrap();
    wrote(9300).unwrap();
    read(&device, 0, 65536).unwrap();
}

/// Once a sync has failed, the kernel has dropped what it could not write: no later flush may
/// say that all is well.
#[test]
fn a_failed_sync_is_never_forgotten() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    let device = device(SectorSize::MIN, faulty.clone());
    run(&device, Operation::Flush, 0, 0).unwrap();
    write(&device, 0, &[1; 512], false).unwrap();
    faulty.fail_syncs(1);
    assert!(run(&device, Operation::Flush, 0, 0).is_err());
    assert!(run(&device, Operation::Flush, 0, 0).is_err());
    assert!(write(&device, 0, &[2; 512], true).is_err());
    write(&device, 0, &[2; 512], false).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Whatever is cut off after an acknowledged flush or FUA, what it covered is there: writes
    /// without a sync behind them may be lost in any combination.
    #[test]
    fn acknowledged_flushes_and_fua_survive_a_power_cut(
        sector in sector_sizes(),
        steps in prop::collection::vec((0u8..6, ranges()), 1..30),
        keep in any::<u64>(),
    ) {
        let faulty = Arc::new(FaultyStorage::new(storage()));
        let device = device(sector, faulty.clone());
        faulty.record();
        let mut live = read(&device, 0, SIZE as u32).unwrap();
        // After each acknowledged step: how much had been recorded, and the bytes that must be
        // there from then on unless written again.
        let mut promises: Vec<(usize, Vec<Option<u8>>)> = Vec::new();
        let mut durable: Vec<Option<u8>> = live.iter().copied().map(Some).collect();
        let mut written_since: Vec<bool> = vec![false; SIZE as usize];
        for (n, (kind, (offset, len))) in steps.into_iter().enumerate() {
            let range = offset as usize..(offset + len) as usize;
            if kind == 0 {
                run(&device, Operation::Flush, 0, 0).unwrap();
                for (at, since) in written_since.iter_mut().enumerate() {
                    if std::mem::take(since) { durable[at] = Some(live[at]); }
                }
            } else {
                let fua = kind == 1;
                write(&device, offset, &vec![n as u8 + 1; len as usize], fua).unwrap();
                // Whole sectors around it are rewritten; their other bytes keep their values.
                live[range.clone()].fill(n as u8 + 1);
                for at in range {
                    written_since[at] = !fua;
                    durable[at] = fua.then_some(n as u8 + 1);
                }
            }
            promises.push((faulty.events().len(), durable.clone()));
        }
        let events = faulty.events();
        for (recorded, promised) in promises {
            let cut = storage();
            let mut random = keep | 1;
            for (index, event) in events[..recorded].iter().enumerate() {
                let synced = events[index..recorded].contains(&Event::Sync);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if let Event::Write { offset_bytes, bytes } = event
                    && (synced || random >> 63 == 1)
                {
                    cut.write_at(bytes, *offset_bytes).unwrap();
                }
            }
            let after = self::device(sector, cut);
            let seen = read(&after, 0, SIZE as u32).unwrap();
            for (at, promise) in promised.iter().enumerate() {
                if let Some(value) = promise {
                    prop_assert_eq!(seen[at], *value, "byte {}", at);
                }
            }
        }
    }
}
