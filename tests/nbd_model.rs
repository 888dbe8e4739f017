//! Any sequence of reads and writes of any offset and length, from several connections at once,
//! against a `Vec<u8>`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::queue::{DeviceOptions, IoMode};
use nbdcrypt::storage::{FaultyStorage, FileStorage, MemoryStorage, OpenMode, Storage};
use nbdcrypt::units::SectorSize;
use nbdcrypt::volume::SegmentKind;
use proptest::prelude::*;

#[path = "common/nbd_client.rs"]
mod nbd_client;
use nbd_client::*;

const SIZE: u64 = 256 << 10;
const CONNECTIONS: usize = 3;

/// One request; its bytes are its own until the batch is answered.
#[derive(Clone, Debug)]
enum Step {
    Read(u64, u32),
    Write {
        offset: u64,
        len: u32,
        fill: u8,
        fua: bool,
    },
    Zero {
        offset: u64,
        len: u32,
    },
    Flush,
    /// Refused, with its payload: past the end.
    Refused(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let lens = prop_oneof![1u32..64, 500u32..1100, 4000u32..4200, 1u32..100_000];
    let range = (0..SIZE, lens).prop_map(|(offset, len)| (offset, len.min((SIZE - offset) as u32)));
    prop_oneof![
        4 => range.clone().prop_map(|(offset, len)| Step::Read(offset, len)),
        6 => (range.clone(), any::<u8>(), any::<bool>())
            .prop_map(|((offset, len), fill, fua)| Step::Write { offset, len, fill, fua }),
        1 => range.prop_map(|(offset, len)| Step::Zero { offset, len }),
        1 => Just(Step::Flush),
        1 => (1u32..50_000).prop_map(Step::Refused),
    ]
}

fn kinds() -> impl Strategy<Value = (SegmentKind, SectorSize)> {
    let cipher = |sector: u64| {
        let sector = SectorSize::new(sector).unwrap();
        let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
        let key: Vec<u8> = (0..64).map(|i| i * 3 + 2).collect();
        let cipher = SectorCipher::new(&spec, &key, sector, IvOptions::default()).unwrap();
        (SegmentKind::Crypt(Arc::new(cipher)), sector)
    };
    prop_oneof![
        Just((SegmentKind::Linear, SectorSize::MIN)),
        Just(cipher(512)),
        Just(cipher(4096)),
    ]
}

/// What a device lies on.
#[derive(Clone, Copy, Debug)]
enum Below {
    /// Memory, each request delayed by so many microseconds: with a delay nothing is read without
    /// waiting, so the workers do it.
    Memory(u64),
    File(IoMode),
}

impl Below {
    fn storage(self) -> (Arc<dyn Storage>, IoMode) {
        match self {
            Self::Memory(delay_us) => {
                let memory = Arc::new(MemoryStorage::new(vec![0; SIZE as usize]));
                let slow = FaultyStorage::new(memory);
                slow.delay_each(Duration::from_micros(delay_us));
                (Arc::new(slow), IoMode::Auto)
            }
            Self::File(io) => (file(SIZE), io),
        }
    }
}

/// A file that is gone when it is closed.
fn file(len_bytes: u64) -> Arc<dyn Storage> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(len_bytes).unwrap();
    Arc::new(FileStorage::open(file.path(), OpenMode::ReadWrite).unwrap())
}

/// What a write holds: no two bytes in reach are alike, so that none can be in another's place.
fn data(fill: u8, len: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ fill)
        .collect()
}

/// Whether two ranges share a byte.
fn overlaps(a: (u64, u32), b: (u64, u32)) -> bool {
    a.0 < b.0 + u64::from(b.1) && b.0 < a.0 + u64::from(a.1)
}

/// Sends a batch over all connections before it takes any reply. Requests in a batch share no
/// byte where one of them writes (though they share sectors), so the outcome is one.
fn run_batch(clients: &mut [Client], batch: &[(usize, Step)], model: &mut [u8]) {
    let mut expected: Vec<BTreeMap<u64, (u32, Vec<u8>)>> = vec![BTreeMap::new(); clients.len()];
    let before = model.to_vec();
    for (cookie, (on, step)) in batch.iter().enumerate() {
        let cookie = cookie as u64;
        let (message, answer) = match step {
            Step::Read(offset, len) => {
                let range = *offset as usize..*offset as usize + *len as usize;
                (
                    request(0, READ, cookie, *offset, *len).to_vec(),
                    (0, before[range].to_vec()),
                )
            }
            Step::Write {
                offset,
                len,
                fill,
                fua,
            } => {
                let data = data(*fill, *len);
                let range = *offset as usize..*offset as usize + *len as usize;
                model[range].copy_from_slice(&data);
                let mut message = request(u16::from(*fua), WRITE, cookie, *offset, *len).to_vec();
                message.extend(data);
                (message, (0, Vec::new()))
            }
            Step::Zero { offset, len } => {
                model[*offset as usize..*offset as usize + *len as usize].fill(0);
                (
                    request(0, WRITE_ZEROES, cookie, *offset, *len).to_vec(),
                    (0, Vec::new()),
                )
            }
            Step::Flush => (request(0, FLUSH, cookie, 0, 0).to_vec(), (0, Vec::new())),
            Step::Refused(len) => {
                let mut message = request(0, WRITE, cookie, SIZE - 1, *len + 1).to_vec();
                message.extend(vec![0xee; *len as usize + 1]);
                (message, (28, Vec::new()))
            }
        };
        expected[*on].insert(cookie, answer);
        clients[*on].send(&message);
    }
    for (client, mut expected) in clients.iter_mut().zip(expected) {
        while !expected.is_empty() {
            // Structured replies say themselves how long they are; simple ones here have no data.
            let reply = client.reply(0);
            let (errno, data) = expected.remove(&reply.cookie).expect("each request once");
            assert_eq!(reply.errno, errno);
            assert!(
                reply.data == data,
                "request {} on {SIZE} bytes",
                reply.cookie
            );
        }
    }
}

/// The byte range that a step touches, and whether it writes.
fn touched(step: &Step) -> Option<((u64, u32), bool)> {
    match step {
        Step::Read(offset, len) => Some(((*offset, *len), false)),
        Step::Write { offset, len, .. } | Step::Zero { offset, len } => {
            Some(((*offset, *len), true))
        }
        Step::Flush | Step::Refused(_) => None,
    }
}

/// Cuts steps into batches that have one outcome, and whose replies fit the socket.
fn batches(steps: Vec<(usize, Step)>) -> Vec<Vec<(usize, Step)>> {
    let mut batches: Vec<Vec<(usize, Step)>> = vec![Vec::new()];
    let mut read_bytes = 0;
    for (on, step) in steps {
        let last = batches.last_mut().expect("never empty");
        let clash = touched(&step).is_some_and(|(range, writes)| {
            last.iter()
                .filter_map(|(_, other)| touched(other))
                .any(|(other, other_writes)| (writes || other_writes) && overlaps(range, other))
        });
        if let Step::Read(_, len) = step {
            read_bytes += len;
        }
        if clash || read_bytes > 100_000 {
            read_bytes = 0;
            batches.push(vec![(on, step)]);
        } else {
            last.push((on, step));
        }
    }
    batches
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_sequence_over_several_connections_equals_a_vec(
        (kind, sector) in kinds(),
        below in prop::sample::select(vec![
            Below::Memory(0), Below::Memory(1), Below::Memory(60),
            Below::File(IoMode::Auto), Below::File(IoMode::Plain), Below::File(IoMode::Uring),
            Below::File(IoMode::Uring),
        ]),
        steps in prop::collection::vec((0..CONNECTIONS, step()), 1..80),
    ) {
        let (storage, io) = below.storage();
        let options = DeviceOptions { io, ..DeviceOptions::default() };
        let device = device_of(storage, kind, SIZE, sector, options);
        let served = Served::new(device, "");
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| served.client(true)).collect();
        let mut model = clients[0].read(0, SIZE as u32);
        for batch in batches(steps) {
            run_batch(&mut clients, &batch, &mut model);
        }
        for client in &mut clients {
            prop_assert!(client.read(0, SIZE as u32) == model);
        }
        let mut simple = served.client(false);
        prop_assert!(simple.read(0, SIZE as u32) == model);
        drop(clients);
        prop_assert!(served.stop().is_ok());
    }
}

/// A file that ends before its volume does: the request that meets the end fails, and no other.
#[test]
fn what_the_file_lacks_fails_alone() {
    for io in [IoMode::Plain, IoMode::Uring, IoMode::Auto] {
        let options = DeviceOptions {
            io,
            ..DeviceOptions::default()
        };
        let storage = file(SIZE / 2);
        let device = device_of(storage, SegmentKind::Linear, SIZE, SectorSize::MIN, options);
        if io == IoMode::Uring && !device.has_ring() {
            eprintln!("skipped: needs io_uring");
            continue;
        }
        let served = Served::new(device, "");
        let mut client = served.client(true);
        let middle = SIZE / 2;
        for (cookie, offset) in [(0, 0), (1, middle - 4096), (2, middle), (3, middle - 8192)] {
            client.send(&request(0, READ, cookie, offset, 8192));
        }
        for _ in 0..4 {
            let reply = client.reply(0);
            let fails = matches!(reply.cookie, 1 | 2);
            assert_eq!(reply.errno != 0, fails, "{io:?}: request {}", reply.cookie);
        }
        assert_eq!(client.write(0, middle - 512, &[7; 1024]).errno, 0);
        assert_eq!(client.read(middle - 512, 1024), [7; 1024]);
    }
}
