//! Finding what is open, and clearing what servers left that are gone.

use super::folder::{Held, StateFolder, VolumeFolder};
use super::state::State;
use crate::attach;
use crate::error::Result;

/// What became of a dead server's things.
#[derive(Debug)]
pub enum Cleared {
    /// All are gone. The folder is there still, and held.
    All(Held),
    /// Its nbd device is in use (in words), and waits for a server to come back.
    Waits(Held, State, String),
}

/// A volume's condition.
#[derive(Debug)]
pub enum Condition {
    /// Its server lives.
    Live,
    /// Its server is gone, and its nbd device (in use, in words) waits for it.
    Waits(State, String),
    /// Its server is gone, and something that it left can't be cleared.
    Stuck(State, String),
}

/// Takes down what a dead server left, as far as nobody can go on with it.
///
/// Errors: `Device` where something of it can't be taken down.
pub fn clear(held: Held) -> Result<Cleared> {
    let state = State::read(&held.folder);
    Ok(
        match attach::clear_dead(&held.folder.place(), state.nbd_process)? {
            Some(user) => Cleared::Waits(held, state, user),
            None => Cleared::All(held),
        },
    )
}

/// All volumes of this user, after clearing what is dead.
pub fn look() -> Vec<(VolumeFolder, Condition)> {
    let folders = StateFolder::existing();
    folders
        .iter()
        .flat_map(StateFolder::volumes)
        .filter_map(look_at)
        .collect()
}

fn look_at(folder: VolumeFolder) -> Option<(VolumeFolder, Condition)> {
    let Some(held) = folder.take_if_dead() else {
        // Gone since it was listed, or alive.
        return folder
            .as_ref()
            .is_dir()
            .then_some((folder, Condition::Live));
    };
    match clear(held) {
        Ok(Cleared::All(held)) => {
            held.remove();
            None
        }
        Ok(Cleared::Waits(_, state, user)) => Some((folder, Condition::Waits(state, user))),
        Err(e) => {
            let state = State::read(&folder);
            Some((folder, Condition::Stuck(state, e.to_string())))
        }
    }
}
