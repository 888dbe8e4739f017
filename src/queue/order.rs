//! The order of overlapping requests, as a state machine: no threads, no I/O.
//!
//! Requests enter in the order they arrive. One runs when it overlaps no earlier one that is
//! still here, unless both only read. So a sector is never written by two requests at a time,
//! a read-modify-write holds against every other writer, and no reader sees half a sector.

use std::collections::VecDeque;

/// Names an entry; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId(u64);

#[derive(Debug)]
struct Entry {
    id: EntryId,
    start_bytes: u64,
    end_bytes: u64,
    exclusive: bool,
    running: bool,
}

impl Entry {
    fn conflicts(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive)
            && self.start_bytes < other.end_bytes
            && other.start_bytes < self.end_bytes
    }
}

/// The requests that run or wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Order {
    entries: VecDeque<Entry>,
    waiting: usize,
    entered: u64,
}

impl Order {
    /// Enters a request over `start_bytes..end_bytes`. The flag says whether it may run now; if
    /// not, a later [`Self::leave`] names it.
    pub(super) fn enter(
        &mut self,
        start_bytes: u64,
        end_bytes: u64,
        exclusive: bool,
    ) -> (EntryId, bool) {
        let id = EntryId(self.entered);
        self.entered += 1;
        let entry = Entry {
            id,
            start_bytes,
            end_bytes,
            exclusive,
            running: false,
        };
        let running = !self.entries.iter().any(|earlier| earlier.conflicts(&entry));
        self.waiting += usize::from(!running);
        self.entries.push_back(Entry { running, ..entry });
        (id, running)
    }

    /// Takes a request out, whether it ran or not, and adds to `ready` those that may run now
    /// because of it, in the order they entered.
    pub(super) fn leave(&mut self, id: EntryId, ready: &mut Vec<EntryId>) {
        let Some(index) = self.entries.iter().position(|entry| entry.id == id) else {
            return;
        };
        let left = self.entries.remove(index).expect("just found");
        self.waiting -= usize::from(!left.running);
        if self.waiting == 0 {
            return;
        }
        for index in index..self.entries.len() {
            let entry = &self.entries[index];
            if entry.running || !entry.conflicts(&left) {
                continue;
            }
            if !self
                .entries
                .range(..index)
                .any(|earlier| earlier.conflicts(entry))
            {
                ready.push(entry.id);
                self.entries[index].running = true;
                self.waiting -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs `steps` of entering and leaving; after each, the running set must be conflict-free
    /// and nothing may wait without an earlier conflict.
    fn check(steps: &[(bool, u64, u64, bool, usize)]) {
        let mut order = Order::default();
        let mut model: Vec<(EntryId, u64, u64, bool, bool)> = Vec::new();
        for &(enter, start, len, exclusive, pick) in steps {
            if enter || model.is_empty() {
                let (id, running) = order.enter(start, start + len, exclusive);
                model.push((id, start, start + len, exclusive, running));
            } else {
                let index = pick % model.len();
                let mut ready = Vec::new();
                let (id, ..) = model.remove(index);
                order.leave(id, &mut ready);
                for id in ready {
                    let entry = model.iter_mut().find(|e| e.0 == id).expect("a known entry");
                    assert!(!entry.4, "made ready twice");
                    entry.4 = true;
                }
            }
            for (i, a) in model.iter().enumerate() {
                let blocked = model[..i]
                    .iter()
                    .any(|b| (a.3 || b.3) && a.1 < b.2 && b.1 < a.2);
                assert_eq!(a.4, !blocked, "{model:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_request_runs_exactly_when_nothing_earlier_conflicts(
            steps in prop::collection::vec(
                (prop::bool::weighted(0.6), 0u64..40, 1u64..10, any::<bool>(), any::<usize>()), 1..60),
        ) {
            check(&steps);
        }
    }
}
