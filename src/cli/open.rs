//! `luks open`: unlocks a volume and serves it in the background, as a block device if it can.

use std::fs;
use std::path::{Path, PathBuf};

use super::DONE;
use super::engine::EngineArgs;
use super::unlock::{self, UnlockArgs, VolumeType};
use crate::attach::{AttachMode, survive};
use crate::control::{
    Cleared, Held, Ready, Service, State, StateFolder, VolumeFolder, clear, in_background, look,
};
use crate::error::{Error, Result};

/// Unlocks IMAGE and serves it in the background, as a block device where this machine has one
///
/// Prints the block device's path. Without root it is the path of a file that holds the volume;
/// with --attach none, and where there is nothing better, the volume's NBD URI.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  dev=$(luks open disk.img data) && mount \"$dev\" /mnt && ls /mnt; \
umount /mnt; luks close data"
)]
pub(crate) struct OpenArgs {
    /// Disk image or block device
    image: PathBuf,
    /// What the volume is called until it is closed
    #[arg(required_unless_present = "test_passphrase")]
    name: Option<String>,
    /// As what it is attached
    #[arg(long, value_enum, default_value_t = AttachMode::Auto, value_name = "HOW")]
    attach: AttachMode,
    /// Say by the exit code whether the passphrase opens it, and serve nothing
    #[arg(long, conflicts_with_all = ["name", "attach"])]
    test_passphrase: bool,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
}

impl OpenArgs {
    pub(crate) fn run(self) -> Result<u8> {
        self.engine.force()?;
        let Some(name) = &self.name else {
            return unlock::test_passphrase(&self.unlock, &self.image).map(|_| DONE);
        };
        let state = StateFolder::open()?;
        let folder = state.volume(name)?;
        // Clears what servers left that are gone, whatever they were called.
        let open = look();
        let elsewhere = open
            .iter()
            .any(|(found, _)| found.name() == name && found.as_ref() != folder.as_ref());
        if elsewhere {
            return Err(in_use(name));
        }
        let ready = in_background(&folder.log(), || self.start_or_clear(&folder), stay)?;
        for note in &ready.notes {
            eprintln!("luks: {note}");
        }
        println!("{}", ready.line);
        Ok(DONE)
    }

    /// What happens in the new process while it has the terminal still. A failure leaves nothing
    /// behind.
    fn start_or_clear(&self, folder: &VolumeFolder) -> Result<(Ready, Service)> {
        survive::hide_memory();
        let Some(held) = folder.take()? else {
            return Err(in_use(folder.name()));
        };
        self.start(held).inspect_err(|_| {
            if let Some(held) = folder.take_if_dead()
                && let Ok(Cleared::All(held)) = clear(held)
            {
                held.remove();
            }
        })
    }

    fn start(&self, held: Held) -> Result<(Ready, Service)> {
        let (held, waiting) = match clear(held)? {
            Cleared::All(held) => (held, None),
            Cleared::Waits(held, state, user) => {
                self.check_same(&state, &user)?;
                (held, Some(state))
            }
        };
        let image = fs::canonicalize(&self.image).unwrap_or_else(|_| self.image.clone());
        let opened = unlock::open_volume(&self.unlock, &self.image)?;
        if let Some(state) = &waiting
            && (state.uuid != opened.device.about().uuid
                || state.read_only != opened.device.read_only())
        {
            return Err(another(&image));
        }
        let mode = if waiting.is_some() {
            AttachMode::Nbd
        } else {
            self.attach
        };
        let service = Service::start(held, opened.device, &image, mode, waiting.as_ref())?;
        let ready = Ready {
            line: service.line(),
            notes: self.notes(&service),
        };
        Ok((ready, service))
    }

    /// A device in use whose server was killed is taken over only for the same volume.
    fn check_same(&self, state: &State, user: &str) -> Result<()> {
        if self.unlock.header.volume_type == VolumeType::Plain {
            return Err(Error::busy(format!(
                "a server of this name was killed and {user}; of a plain volume nothing tells \
                 whether the key is the same"
            ))
            .on(&state.image)
            .hint("end its use first"));
        }
        let image = fs::canonicalize(&self.image).unwrap_or_else(|_| self.image.clone());
        let same = Path::new(&state.image) == image;
        if same && matches!(self.attach, AttachMode::Auto | AttachMode::Nbd) {
            return Ok(());
        }
        Err(
            Error::busy(format!("a server of this name was killed and {user}"))
                .on(&state.image)
                .hint("luks open of the same image goes on with it; or end its use first"),
        )
    }

    fn notes(&self, service: &Service) -> Vec<String> {
        // A file is what a user without root gets, and a loop device is as good as any.
        let expected = !rustix::process::geteuid().is_root() && service.line().starts_with('/');
        let fallback = service
            .notes()
            .iter()
            .filter(|_| !expected && !service.is_block_device());
        fallback.cloned().collect()
    }
}

fn stay(service: Service, heard: bool) {
    if !heard {
        return service.abandon();
    }
    if let Err(e) = service.run() {
        eprintln!("{e}");
    }
}

fn in_use(name: &str) -> Error {
    Error::busy("a volume of this name is open already")
        .on(name)
        .hint("another name, or luks close first")
}

fn another(image: &Path) -> Error {
    Error::busy(
        "the device that waits for its server belongs to another volume, or to one opened \
with another --read-only",
    )
    .on(image.display())
    .hint("open it as it was before, or end its use first")
}
