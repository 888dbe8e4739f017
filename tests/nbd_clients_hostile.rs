//! Clients that are slow, silent or gone, and servers that stop, against a raw client.

use std::sync::Arc;
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

// The handshake.

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    faulty.delay_each(Duration::from_millis(30));
    let served = Served::new(linear_device(faulty.clone(), DeviceOptions::default()), "");
    for round in 0..3 {
        let mut client = served.client(true);
        for i in 0..16u64 {
            client.request(0, READ, i, i * 4096, 4096);
            client.request(FUA, WRITE_ZEROES, 100 + i, i * 4096, 4096);
        }
        // Half a write, and then nothing more.
        client.send(&request(0, WRITE, 50, 0, 4096));
        client.send(&vec![1; 100 * round]);
        drop(client);
    }
    let started = Instant::now();
    while served
        .handle
        .clients()
        .as_array()
        .unwrap()
        .iter()
        .any(|_| true)
    {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{}",
            served.handle.clients()
        );
        thread::sleep(Duration::from_millis(10));
    }
    let mut client = served.client(true);
    assert_eq!(client.read(0, 2), [0; 2]);
}

/// The kernel's nbd driver gives a connection up after a time-out and sends its requests again on
/// another: what is unread on the old one by then must never be done.
#[test]
fn what_lay_unread_for_long_dies_with_its_client() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    let served = Served::new(linear_device(faulty.clone(), DeviceOptions::default()), "");
    faulty.record();
    faulty.delay_each(Duration::from_secs(1));
    let mut client = served.client(true);
    for i in 0..12 {
        client.send(&request(0, WRITE, i, 0, 4096));
        client.send(&[i as u8; 4096]);
    }
    drop(client);
    while served
        .handle
        .clients()
        .as_array()
        .is_some_and(|clients| !clients.is_empty())
    {
        thread::sleep(Duration::from_millis(50));
    }
    let writes = faulty.events().len();
    assert!((1..=8).contains(&writes), "{writes} of 12 writes were done");
}

#[test]
fn a_client_that_takes_no_replies_holds_no_more_than_its_share() {
    let size = 64 << 20;
    let storage = Arc::new(MemoryStorage::new(vec![3; size]));
    let served = Served::new(linear_device(storage, DeviceOptions::default()), "");
    // Each asks for more than the process has, and takes nothing.
    let mut greedy: Vec<Client> = (0..6)
        .map(|_| {
            let mut client = served.client(true);
            for i in 0..120 {
                client.request(0, READ, i, 0, 4 << 20);
            }
            client
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    let mut client = served.client(true);
    assert_eq!(client.read(1, 100_000), vec![3; 100_000]);
    assert_eq!(client.write(0, 4096, &vec![4; 1 << 20]).errno, 0);
    assert!(started.elapsed() < Duration::from_secs(1));
    // And they are served in full once they take.
    let mut cookies: Vec<u64> = (0..120)
        .map(|_| {
            let reply = greedy[0].reply(0);
            assert_eq!(reply.data.len(), 4 << 20);
            reply.cookie
        })
        .collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..120).collect::<Vec<_>>());
}

/// What workers finish for a client that takes its replies slowly arrives whole, and others are
/// served meanwhile.
#[test]
fn a_slow_client_gets_everything_from_the_workers() {
    let size: u64 = 16 << 20;
    let bytes: Vec<u8> = (0..size).map(|i| (i / 1000) as u8).collect();
    let slow = FaultyStorage::new(Arc::new(MemoryStorage::new(bytes.clone())));
    slow.delay_each(Duration::from_micros(300));
    let served = Served::new(linear_device(Arc::new(slow), DeviceOptions::default()), "");
    let mut client = served.client(true);
    const LEN: u32 = 200_000;
    let offset = |cookie: u64| cookie * 77_777;
    for cookie in 0..200 {
        // More than may be in flight: the rest waits in the socket.
        client.request(0, READ, cookie, offset(cookie), LEN);
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 200 {
        if seen.len() % 20 == 0 {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(served.client(false).read(5000, 1), [5]);
        }
        let reply = client.reply(0);
        assert_eq!(reply.errno, 0);
        let start = offset(reply.cookie) as usize;
        assert!(reply.data == bytes[start..start + LEN as usize]);
        assert!(seen.insert(reply.cookie));
    }
}

#[test]
fn silent_connections_do_not_keep_others_out() {
    let served = served();
    let silent: Vec<Client> = (0..200).map(|_| served.connect()).collect();
    let started = Instant::now();
    let mut client = served.client(true);
    assert_eq!(client.read(70, 7), [10; 7]);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    let started = Instant::now();
    served.stop().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    drop((silent, client));
}

#[test]
fn a_handshake_has_a_deadline() {
    let served = served();
    let mut slow = served.connect();
    slow.hello(3);
    let started = Instant::now();
    // A byte now and then is not enough to stay.
    for byte in b"IHAVEOPT\0\0\0\x07\0\0\0\0" {
        if std::io::Write::write_all(&mut slow.stream, &[*byte]).is_err() {
            break;
        }
        thread::sleep(Duration::from_secs(1));
    }
    slow.expect_end();
    let took = started.elapsed();
    assert!(
        took > Duration::from_secs(8) && took < Duration::from_secs(17),
        "{took:?}"
    );
}

#[test]
fn stopping_finishes_and_flushes_with_clients_attached() {
    let faulty = Arc::new(FaultyStorage::new(storage()));
    faulty.record();
    let served = Served::new(linear_device(faulty.clone(), DeviceOptions::default()), "");
    let mut client = served.client(true);
    assert_eq!(client.write(0, 0, &[1; 4096]).errno, 0);
    faulty.delay_each(Duration::from_millis(300));
    client.request(FUA, WRITE_ZEROES, 1, 8192, 512);
    thread::sleep(Duration::from_millis(100));
    let socket = served.socket.clone();
    let started = Instant::now();
    served.stop().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(client.reply(0).errno, 0, "what was in flight is answered");
    client.expect_end();
    assert_eq!(faulty.events().last(), Some(&Event::Sync));
    assert!(!socket.exists());
}

#[test]
fn a_client_that_takes_no_replies_does_not_keep_the_server() {
    let storage = Arc::new(MemoryStorage::new(vec![3; 8 << 20]));
    let served = Served::new(linear_device(storage, DeviceOptions::default()), "");
    let mut client = served.client(true);
    for i in 0..20 {
        client.request(0, READ, i, 0, 4 << 20);
    }
    thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    served.stop().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    drop(client);
}
