//! The clients a server has now.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};

use crate::nbd::Link;

/// The connections of a server.
#[derive(Debug)]
pub(super) struct Clients {
    map: Mutex<Map>,
    left: Condvar,
    /// Readable when one has left.
    room: OwnedFd,
}

#[derive(Debug, Default)]
struct Map {
    next_id: u64,
    by_id: BTreeMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    link: Arc<Link>,
    peer: String,
    since: Instant,
}

/// Takes a client off the list when dropped.
#[derive(Debug)]
pub(super) struct Entry {
    clients: Arc<Clients>,
    id: u64,
}

impl Clients {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            map: Mutex::default(),
            left: Condvar::new(),
            room: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    /// Adds a client until the entry is dropped.
    pub(super) fn enter(self: &Arc<Self>, link: Arc<Link>, peer: String) -> Entry {
        let mut map = self.lock();
        let id = map.next_id;
        map.next_id += 1;
        map.by_id.insert(
            id,
            Client {
                link,
                peer,
                since: Instant::now(),
            },
        );
        Entry {
            clients: Arc::clone(self),
            id,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Becomes readable when a client has left since the last [`Self::take_room`].
    pub(super) fn room_fd(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    pub(super) fn take_room(&self) {
        let _ = rustix::io::read(&self.room, &mut [0; 8]);
    }

    /// Ends every connection: those that are still there after `timeout` are cut off.
    pub(super) fn end(&self, timeout: Duration) {
        self.lock()
            .by_id
            .values()
            .for_each(|client| client.link.stop());
        if !self.wait_until_empty(timeout) {
            self.lock()
                .by_id
                .values()
                .for_each(|client| client.link.cut());
            self.wait_until_empty(Duration::from_millis(500));
        }
    }

    /// One object a client, for `status --json`.
    pub(super) fn to_json(&self) -> Value {
        let map = self.lock();
        let clients = map.by_id.iter().map(|(id, client)| {
            let link = &client.link;
            json!({
                "id": id,
                "peer": client.peer,
                "state": if link.in_transmission() { "transmission" } else { "handshake" },
                "connected_s": client.since.elapsed().as_secs(),
                "requests": link.requests(),
                "in_flight": link.in_flight(),
            })
        });
        Value::Array(clients.collect())
    }

    fn wait_until_empty(&self, timeout: Duration) -> bool {
        let map = self.lock();
        let (map, _) = self
            .left
            .wait_timeout_while(map, timeout, |map| !map.by_id.is_empty())
            .unwrap_or_else(|e| e.into_inner());
        map.by_id.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        // Nothing panics while it holds this lock; a poisoned state is still consistent.
        self.map.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.clients.lock().by_id.remove(&self.id);
        self.clients.left.notify_all();
        let _ = rustix::io::write(&self.clients.room, &1u64.to_ne_bytes());
    }
}
