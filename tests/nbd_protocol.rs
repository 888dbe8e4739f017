//! The server against a raw client: each option, each command, each errno of the specification,
//! and what a client may do wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nbdcrypt::queue::DeviceOptions;
use nbdcrypt::storage::{Event, FaultyStorage, MemoryStorage};

#[path = "common/nbd_client.rs"]
mod nbd_client;
use nbd_client::*;

const SIZE: u64 = 1 << 20;

fn storage() -> Arc<MemoryStorage> {
    Arc::new(MemoryStorage::new(
        (0..SIZE).map(|i| (i / 7) as u8).collect(),
    ))
}

fn served() -> Served {
    Served::new(linear_device(storage(), DeviceOptions::default()), "")
}

fn served_with(options: DeviceOptions) -> Served {
    Served::new(linear_device(storage(), options), "")
}

// The handshake.

#[test]
fn go_tells_size_and_flags() {
    let served = served();
    let mut client = served.connect();
    client.hello(3);
    let (size, flags) = client.go(b"");
    assert_eq!(size, SIZE);
    // HAS_FLAGS, FLUSH, FUA, WRITE_ZEROES, MULTI_CONN, CACHE, FAST_ZERO; no TRIM, no DF.
    assert_eq!(flags, 1 | 4 | 8 | 64 | 256 | 1024 | 2048);
    let (_, flags) = {
        let mut client = served.connect();
        client.hello(3);
        client.option(OPT_STRUCTURED_REPLY, &[]);
        assert_eq!(
            client.option_reply(),
            (OPT_STRUCTURED_REPLY, REP_ACK, vec![])
        );
        client.go(b"")
    };
    assert_eq!(flags & 128, 128, "DF comes with structured replies");
    let trims = served_with(DeviceOptions {
        allow_discards: true,
        read_only: false,
        ..DeviceOptions::default()
    });
    let mut client = trims.connect();
    client.hello(3);
    assert_eq!(client.go(b"").1 & 32, 32);
    let read_only = served_with(DeviceOptions {
        allow_discards: true,
        read_only: true,
        ..DeviceOptions::default()
    });
    let mut client = read_only.connect();
    client.hello(3);
    assert_eq!(client.go(b"").1, 1 | 2 | 4 | 8 | 256 | 1024);
}

#[test]
fn export_name_with_and_without_zeroes() {
    let served = served();
    for (flags, zeroes) in [(1, 124), (3, 0), (0, 124), (2, 0)] {
        let mut client = served.connect();
        client.hello(flags);
        client.option(OPT_EXPORT_NAME, b"");
        assert_eq!(client.u64(), SIZE);
        assert_eq!(client.u16() & 1, 1);
        assert_eq!(client.take_vec(zeroes), vec![0; zeroes]);
        assert_eq!(
            client.read(70, 7),
            [10; 7],
            "transmission began right behind"
        );
    }
    let mut client = served.connect();
    client.hello(3);
    client.option(OPT_EXPORT_NAME, b"other");
    client.expect_end();
}

#[test]
fn info_answers_what_is_asked_and_does_not_start() {
    let served = Served::new(linear_device(storage(), DeviceOptions::default()), "disk");
    let mut client = served.connect();
    client.hello(3);
    client.option(OPT_INFO, &info(b"disk", &[3, 1, 2, 0x7777]));
    let mut items = Vec::new();
    loop {
        let (option, kind, data) = client.option_reply();
        assert_eq!(option, OPT_INFO);
        if kind == REP_ACK {
            break;
        }
        assert_eq!(kind, REP_INFO);
        items.push(data);
    }
    items.sort();
    assert_eq!(items[0][..10], [&[0, 0][..], &SIZE.to_be_bytes()].concat());
    assert_eq!(items[1], b"\0\x01disk");
    assert_eq!(items[2], b"\0\x02plain");
    // Minimum 1, preferred 4096, maximum 32 MiB.
    assert_eq!(items[3], [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]);
    assert_eq!(items.len(), 4);
    client.option(OPT_GO, &info(b"", &[]));
    assert_eq!(client.option_reply(), (OPT_GO, REP_ERR_UNKNOWN, vec![]));
    assert_eq!(client.go(b"disk").0, SIZE);
}

#[test]
fn list_names_the_export() {
    let served = Served::new(linear_device(storage(), DeviceOptions::default()), "disk");
    let mut client = served.connect();
    client.hello(3);
    client.option(OPT_LIST, &[]);
    let (_, kind, data) = client.option_reply();
    assert_eq!((kind, &data[..8]), (REP_SERVER, &b"\0\0\0\x04disk"[..]));
    assert_eq!(client.option_reply(), (OPT_LIST, REP_ACK, vec![]));
    client.option(OPT_LIST, b"x");
    assert_eq!(client.option_reply().1, REP_ERR_INVALID);
}

#[test]
fn meta_contexts_need_structured_replies_and_the_right_export() {
    let served = served();
    let mut client = served.connect();
    client.hello(3);
    let ask = |client: &mut Client, option, data: &[u8]| {
        client.option(option, data);
        let mut contexts = Vec::new();
        loop {
            match client.option_reply() {
                (_, REP_META_CONTEXT, data) => contexts.push(data),
                (_, kind, _) => return (kind, contexts),
            }
        }
    };
    let allocation = meta(b"", &[b"base:allocation"]);
    for option in [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
        assert_eq!(ask(&mut client, option, &allocation).0, REP_ERR_INVALID);
    }
    client.option(OPT_STRUCTURED_REPLY, &[]);
    assert_eq!(client.option_reply().1, REP_ACK);
    let listed = (REP_ACK, vec![b"\0\0\0\0base:allocation".to_vec()]);
    for queries in [&[][..], &[&b"base:"[..]], &[b"x-y:z", b"base:allocation"]] {
        assert_eq!(
            ask(&mut client, OPT_LIST_META_CONTEXT, &meta(b"", queries)),
            listed
        );
    }
    let none = (REP_ACK, vec![]);
    assert_eq!(
        ask(&mut client, OPT_LIST_META_CONTEXT, &meta(b"", &[b"qemu:"])),
        none
    );
    assert_eq!(
        ask(&mut client, OPT_SET_META_CONTEXT, &meta(b"", &[])),
        none
    );
    assert_eq!(
        ask(&mut client, OPT_SET_META_CONTEXT, &meta(b"", &[b"base:"])),
        none
    );
    let set = ask(&mut client, OPT_SET_META_CONTEXT, &allocation);
    assert_eq!(set, (REP_ACK, vec![b"\0\0\0\x01base:allocation".to_vec()]));
    // A failed SET forgets what was set.
    let unknown = ask(
        &mut client,
        OPT_SET_META_CONTEXT,
        &meta(b"x", &[b"base:allocation"]),
    );
    assert_eq!(unknown.0, REP_ERR_UNKNOWN);
    let mut short = meta(b"", &[b"base:allocation"]);
    short.pop();
    assert_eq!(
        ask(&mut client, OPT_SET_META_CONTEXT, &short).0,
        REP_ERR_INVALID
    );
    let mut many = meta(b"", &[]);
    many[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        ask(&mut client, OPT_SET_META_CONTEXT, &many).0,
        REP_ERR_INVALID
    );
    client.go(b"");
    client.structured = true;
    assert_eq!(client.ask(0, BLOCK_STATUS, 0, 512).errno, 22);
}

#[test]
fn unknown_and_refused_options_leave_the_handshake_going() {
    let served = served();
    let mut client = served.connect();
    client.hello(3);
    for (option, data) in [
        (OPT_STARTTLS, &[][..]),
        (11, &[]),
        (4, b"peek"),
        (0xdead_beef, b"?"),
    ] {
        client.option(option, data);
        assert_eq!(client.option_reply(), (option, REP_ERR_UNSUP, vec![]));
    }
    client.option(OPT_GO, &[0, 0, 0, 9, b'x']);
    assert_eq!(client.option_reply().1, REP_ERR_INVALID);
    client.option(OPT_STRUCTURED_REPLY, b"x");
    assert_eq!(client.option_reply().1, REP_ERR_INVALID);
    client.option_header(OPT_GO, 200_000);
    client.send(&vec![0; 200_000]);
    assert_eq!(client.option_reply(), (OPT_GO, REP_ERR_TOO_BIG, vec![]));
    assert_eq!(client.go(b"").0, SIZE);
}

#[test]
fn the_handshake_ends_where_it_must() {
    let served = served();
    let started = |flags: u32| {
        let mut client = served.connect();
        client.hello(flags);
        client
    };
    let mut client = started(3);
    client.option(OPT_ABORT, b"ignored");
    assert_eq!(client.option_reply(), (OPT_ABORT, REP_ACK, vec![]));
    client.expect_end();
    // Client flags that nobody offered.
    started(4).expect_end();
    started(0x8000_0003).expect_end();
    // Without fixed newstyle there is only EXPORT_NAME.
    let mut client = started(0);
    client.option(OPT_LIST, &[]);
    client.expect_end();
    let mut client = started(3);
    client.send(b"IHAVEOPS\0\0\0\x03\0\0\0\0");
    client.expect_end();
    // Lengths that nobody reads past.
    for len in [2 << 20, u32::MAX] {
        let mut client = started(3);
        client.option_header(OPT_GO, len);
        client.expect_end();
    }
    let mut client = started(3);
    client.option_header(OPT_EXPORT_NAME, 100_000);
    client.expect_end();
    // Options without end.
    let mut client = started(3);
    for _ in 0..64 {
        client.option(99, &[]);
        assert_eq!(client.option_reply().1, REP_ERR_UNSUP);
    }
    client.expect_end();
}

// Transmission.

#[test]
fn reads_and_writes_off_the_grid() {
    for structured in [false, true] {
        let served = served();
        let mut client = served.client(structured);
        let data: Vec<u8> = (0..5000).map(|i| (i * 13) as u8).collect();
        let reply = client.write(0, 1001, &data);
        assert_eq!((reply.errno, reply.chunk), (0, None));
        assert_eq!(client.read(1001, 5000), data);
        assert_eq!(client.read(1000, 1), [(1000 / 7) as u8]);
        assert_eq!(client.read(6001, 2), [(6001 / 7) as u8; 2]);
        let reply = client.ask(DF * u16::from(structured), READ, 1001, 100);
        assert_eq!((reply.errno, reply.data.as_slice()), (0, &data[..100]));
        assert_eq!(reply.chunk, structured.then_some(1));
        let whole = client.read(0, SIZE as u32);
        assert_eq!(whole.len() as u64, SIZE);
        assert_eq!(&whole[1001..6001], data);
    }
}

#[test]
fn a_large_write_beside_small_ones_stays_in_step() {
    let storage = Arc::new(MemoryStorage::new(vec![0; 40 << 20]));
    let served = Served::new(linear_device(storage, DeviceOptions::default()), "");
    let mut client = served.client(true);
    let large: Vec<u8> = (0..32 << 20).map(|i: u32| (i / 3) as u8).collect();
    let mut stream = Vec::new();
    for (cookie, (offset, data)) in [
        (5, &large[..3]),
        (4096, &large[..]),
        (1000, &large[..70_000]),
        (0, &large[..4096]),
    ]
    .into_iter()
    .enumerate()
    {
        stream.extend(request(0, WRITE, cookie as u64, offset, data.len() as u32));
        stream.extend(data);
    }
    let mut writer = client.stream.try_clone().unwrap();
    let sent = thread::spawn(move || std::io::Write::write_all(&mut writer, &stream));
    let mut cookies: Vec<u64> = (0..4).map(|_| client.reply(0).cookie).collect();
    sent.join().unwrap().unwrap();
    cookies.sort();
    assert_eq!(cookies, [0, 1, 2, 3]);
    let whole = client.read(0, 32 << 20);
    assert_eq!(whole[..4096], large[..4096]);
    assert_eq!(whole[4096..71_000], large[4096 - 1000..70_000]);
    assert_eq!(whole[71_000..], large[71_000 - 4096..(32 << 20) - 4096]);
}

#[test]
fn each_errno_as_specified() {
    for structured in [false, true] {
        let served = served();
        let mut client = served.client(structured);
        let expect = |client: &mut Client, errno, flags, command, offset, len| {
            let reply = client.ask(flags, command, offset, len);
            assert_eq!(reply.errno, errno, "{command} {flags} {offset} {len}");
            assert_eq!(
                reply.chunk.is_some(),
                structured,
                "errors are structured if they may be"
            );
        };
        expect(&mut client, 22, 0, READ, SIZE - 1, 2);
        expect(&mut client, 22, 0, READ, u64::MAX, 1);
        expect(&mut client, 22, 0, READ, u64::MAX - 10, 11);
        expect(&mut client, 22, 0, CACHE, SIZE, 1);
        expect(&mut client, 28, 0, WRITE_ZEROES, SIZE - 1, 2);
        expect(&mut client, 22, 0, TRIM, 0, 512);
        expect(&mut client, 22, 0, FLUSH, 0, 1);
        expect(&mut client, 22, 0, 8, 0, 0);
        expect(&mut client, 22, 0, 0xffff, 0, 1 << 30);
        expect(&mut client, 22, NO_HOLE, READ, 0, 512);
        expect(&mut client, 22, 0x8000, FLUSH, 0, 0);
        expect(&mut client, 95, FAST_ZERO, WRITE_ZEROES, 0, 512);
        expect(
            &mut client,
            95,
            FAST_ZERO | NO_HOLE | FUA,
            WRITE_ZEROES,
            0,
            512,
        );
        if !structured {
            expect(&mut client, 22, DF, READ, 0, 512);
            expect(&mut client, 22, 0, BLOCK_STATUS, 0, 512);
        }
        assert_eq!(
            client.read(0, 7),
            [0; 7],
            "and the stream is in step, the data untouched"
        );
    }
}

#[test]
fn refused_writes_are_read_past() {
    let served = served();
    let mut client = served.client(true);
    assert_eq!(client.write(0, SIZE - 100, &[1; 101]).errno, 28);
    assert_eq!(client.write(0, u64::MAX - 5, &[1; 10]).errno, 28);
    assert_eq!(client.write(DF, 0, &[1; 100_000]).errno, 22);
    assert_eq!(client.write(0, 0, &vec![1; (32 << 20) + 1]).errno, 28);
    assert_eq!(client.read(0, 7), [0; 7]);
    let big = Arc::new(MemoryStorage::new(vec![0; 40 << 20]));
    let served = Served::new(linear_device(big, DeviceOptions::default()), "");
    let mut client = served.client(true);
    assert_eq!(client.write(0, 0, &vec![1; (32 << 20) + 1]).errno, 22);
    assert_eq!(client.ask(0, READ, 0, (32 << 20) + 1).errno, 75);
    let mut simple = served.client(false);
    assert_eq!(simple.ask(0, READ, 0, (32 << 20) + 1).errno, 22);
    assert_eq!(simple.read(0, 2), [0; 2]);
    let served = served_with(DeviceOptions {
        read_only: true,
        allow_discards: false,
        ..DeviceOptions::default()
    });
    let mut client = served.client(true);
    assert_eq!(client.write(0, 0, &[1; 5000]).errno, 1);
    assert_eq!(client.write(0x4000, u64::MAX, &[1; 5000]).errno, 1);
    assert_eq!(client.ask(0, TRIM, 0, 512).errno, 1);
    assert_eq!(client.ask(0, WRITE_ZEROES, 0, 512).errno, 1);
    assert_eq!(client.ask(0, FLUSH, 0, 0).errno, 0);
    assert_eq!(client.read(0, 7), [0; 7]);
}

#[test]
fn nothing_is_something_too() {
    for structured in [false, true] {
        let served = served();
        let mut client = served.client(structured);
        let reply = client.ask(0, READ, 10, 0);
        assert_eq!((reply.errno, reply.data.len()), (0, 0));
        assert_eq!(
            reply.chunk,
            structured.then_some(0),
            "reads are answered structured"
        );
        for command in [WRITE, CACHE, WRITE_ZEROES] {
            assert_eq!(client.ask(0, command, SIZE, 0).errno, 0);
        }
        assert_eq!(client.ask(0, READ, SIZE + 1, 0).errno, 22);
        if structured {
            assert_eq!(client.ask(0, BLOCK_STATUS, 0, 0).errno, 22);
        }
    }
}

#[test]
fn zeroes_trim_cache_flush_and_status() {
    let served = served_with(DeviceOptions {
        read_only: false,
        allow_discards: true,
        ..DeviceOptions::default()
    });
    let mut client = served.client(true);
    assert_eq!(client.ask(FUA | NO_HOLE, WRITE_ZEROES, 3, 10_000).errno, 0);
    assert_eq!(client.read(3, 10_000), vec![0; 10_000]);
    assert_eq!(client.read(10_003, 1), [(10_003 / 7) as u8]);
    assert_eq!(client.ask(FUA, TRIM, 20_000, 5000).errno, 0);
    assert_eq!(client.ask(0, TRIM, SIZE, 512).errno, 22);
    assert_eq!(
        client.ask(FUA, CACHE, 0, SIZE as u32).errno,
        0,
        "FUA is taken everywhere"
    );
    assert_eq!(client.ask(FUA, FLUSH, 0, 0).errno, 0);
    let reply = client.ask(0, BLOCK_STATUS, 512, 4096);
    assert_eq!((reply.extents, reply.chunk), (vec![(4096, 0)], Some(5)));
    let reply = client.ask(REQ_ONE, BLOCK_STATUS, 1, 10);
    assert_eq!(reply.extents, [(10, 0)]);
    assert_eq!(client.ask(0, BLOCK_STATUS, SIZE - 1, 2).errno, 22);
}

#[test]
fn io_errors_reach_the_client_with_their_number() {
    for structured in [false, true] {
        let faulty = Arc::new(FaultyStorage::new(storage()));
        let served = Served::new(linear_device(faulty.clone(), DeviceOptions::default()), "");
        let mut client = served.client(structured);
        for (errno, wire) in [
            (libc::EIO, 5),
            (libc::ENOSPC, 28),
            (libc::EDQUOT, 28),
            (libc::EFBIG, 28),
            (libc::EROFS, 1),
        ] {
            faulty.fail_writes(0..512, errno);
            let reply = client.write(0, 0, &[1; 512]);
            assert_eq!(reply.errno, wire);
            assert_eq!(reply.chunk, structured.then_some(0x8002));
            faulty.heal();
        }
        faulty.fail_reads(8192..8193, libc::EIO);
        let reply = client.ask(0, READ, 8000, 1000);
        assert_eq!((reply.errno, reply.data.len()), (5, 0));
        assert_eq!(client.read(70, 7), [10; 7], "the connection goes on");
        faulty.fail_syncs(1);
        assert_eq!(client.ask(0, FLUSH, 0, 0).errno, 5);
        faulty.heal();
        drop(client);
        assert!(
            served.stop().is_err(),
            "what could not be made durable is told"
        );
    }
}

#[test]
fn fua_and_flush_sync_before_they_are_answered() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    faulty.record();
    let served = Served::new(linear_device(faulty.clone(), DeviceOptions::default()), "");
    let (mut one, mut other) = (served.client(true), served.client(false));
    assert_eq!(one.write(0, 0, &[1; 4096]).errno, 0);
    assert!(!faulty.events().contains(&Event::Sync));
    assert_eq!(other.ask(0, FLUSH, 0, 0).errno, 0);
    assert_eq!(
        faulty.events().last(),
        Some(&Event::Sync),
        "a flush covers all connections"
    );
    assert_eq!(one.write(FUA, 4096, &[2; 4096]).errno, 0);
    let events = faulty.events();
    assert!(matches!(
        events[events.len() - 2],
        Event::Write {
            offset_bytes: 4096,
            ..
        }
    ));
    assert_eq!(events.last(), Some(&Event::Sync));
}

#[test]
fn a_wrong_magic_ends_the_connection_and_no_other() {
    let served = served();
    let (mut bad, mut good) = (served.client(true), served.client(true));
    let mut message = request(0, READ, 1, 0, 512);
    message[0] ^= 0x80;
    bad.send(&message);
    bad.expect_end();
    assert_eq!(good.read(70, 7), [10; 7]);
}

/// Bytes that follow no protocol, or follow it for a while: no panic, no client left behind, and
/// others don't notice.
#[test]
fn noise_ends_its_own_connection_at_most() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if thread::current().name() == Some("nbd-lane") {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        told(panic);
    }));
    let served = served();
    let mut good = served.client(true);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..400 {
        let mut client = match round % 2 {
            0 => served.connect(),
            _ => served.client(round % 4 == 1),
        };
        let mut noise = Vec::new();
        for _ in 0..random() % 20 {
            match random() % 4 {
                0 => noise.extend(random().to_be_bytes()),
                1 => noise.extend(0x2560_9513u32.to_be_bytes()),
                2 => {
                    let [flags, command] = [random() as u16 & 0x801f, random() as u16 % 10];
                    let (offset, len) = (random() % (2 * SIZE), random() as u32 % 9000);
                    noise.extend(request(flags, command, random(), offset, len));
                    if command == WRITE {
                        noise.extend(vec![1; len as usize]);
                    }
                }
                _ => {
                    noise.extend(b"IHAVEOPT");
                    noise.extend((random() as u32 % 12).to_be_bytes());
                    noise.extend((random() as u32 % 30).to_be_bytes());
                    noise.extend(vec![0; random() as usize % 30]);
                }
            }
        }
        if round % 2 == 0 {
            noise.splice(0..0, 3u32.to_be_bytes());
        }
        // It may have been shown the door already.
        let _ = std::io::Write::write_all(&mut client.stream, &noise);
        drop(client);
        assert_eq!(good.ask(0, CACHE, 0, 512).errno, 0);
    }
    let started = Instant::now();
    while served.handle.clients().as_array().unwrap().len() > 1 {
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{}",
            served.handle.clients()
        );
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
fn disconnect_finishes_what_is_in_flight() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    faulty.delay_each(Duration::from_millis(50));
    let served = Served::new(linear_device(faulty.clone(), DeviceOptions::default()), "");
    let mut client = served.client(true);
    let mut message = Vec::new();
    for i in 0..4u64 {
        message.extend(request(FUA, WRITE, i, i * 1000, 10));
        message.extend([9; 10]);
    }
    message.extend(request(0xffff, DISC, 9, 77, 77));
    client.send(&message);
    let mut cookies: Vec<u64> = (0..4).map(|_| client.reply(0).cookie).collect();
    cookies.sort();
    assert_eq!(cookies, [0, 1, 2, 3]);
    client.expect_end();
    let mut client = served.client(false);
    assert_eq!(client.read(3000, 10), [9; 10]);
}

#[test]
fn requests_of_one_connection_are_in_flight_together() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    faulty.delay_each(Duration::from_millis(100));
    let served = Served::new(linear_device(faulty.clone(), DeviceOptions::default()), "");
    let mut client = served.client(false);
    for i in 0..8u64 {
        let mut message = request(FUA, WRITE, i, i * 4096, 4096).to_vec();
        message.extend([7; 4096]);
        client.send(&message);
    }
    for _ in 0..8 {
        assert_eq!(client.reply(0).errno, 0);
    }
    assert!(faulty.in_flight_max() >= 2, "{}", faulty.in_flight_max());
}
