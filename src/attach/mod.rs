//! A served volume as a block device of this machine: the kernel's nbd driver over our own NBD
//! socket, or a file under FUSE with a loop device over it.
//!
//! Whatever stands here is found again by name after its server was killed: a FUSE mount and its
//! loop device by their place in the volume's folder, an nbd device by the identifier that the
//! kernel keeps.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

mod block;
mod fuse;
mod fuse_mount;
mod loop_device;
pub(crate) mod nbd_client;
mod nbd_kernel;
mod netlink;
mod partitions;
pub(crate) mod survive;

use self::block::BlockDevice;
use self::fuse::FuseFile;
use self::loop_device::LoopDevice;
use self::nbd_kernel::{NbdDevice, NbdOptions};
use crate::error::{Error, Result};
use crate::queue::Device;

/// How long somebody who has it open may be a visitor only, and no user.
const SHORT_VISIT: Duration = Duration::from_secs(1);

/// What a volume is attached as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AttachMode {
    /// The best that this machine and user have.
    #[default]
    Auto,
    /// The kernel's nbd driver.
    Nbd,
    /// A file under FUSE, with a loop device over it where that is allowed.
    Fuse,
    /// Nothing but the NBD socket.
    None,
}

/// Where a volume's things lie, by which they are found again.
#[derive(Clone, Debug)]
pub struct Place {
    /// The volume's name; the file under FUSE is named so.
    pub name: String,
    /// The folder that FUSE mounts on; made and removed here.
    pub mount: PathBuf,
    /// The server's NBD socket.
    pub socket: PathBuf,
    /// Says whose an nbd device is.
    pub identifier: String,
}

/// An attached volume. Dropping it leaves everything as it is.
#[derive(Debug, Default)]
pub struct Attachment {
    block: Option<Block>,
    file: Option<FuseFile>,
    place: Option<PathBuf>,
    /// Why it isn't something better, a line each.
    pub notes: Vec<String>,
}

#[derive(Debug)]
enum Block {
    Nbd(NbdDevice),
    Loop(LoopDevice),
}

impl Attachment {
    /// Attaches the device, whose server listens at `place.socket` already. `nbd_process` is what
    /// an earlier server of this place had as [`Self::nbd_process`], or 0: a kernel before 5.14
    /// needs it to tell that an nbd device is ours.
    ///
    /// Errors: `Device` (exit 4) with the reason where the mode asked for can't be had.
    pub fn new(
        device: &Arc<Device>,
        mode: AttachMode,
        place: &Place,
        nbd_process: u32,
    ) -> Result<Self> {
        let mut notes = Vec::new();
        if matches!(mode, AttachMode::Auto | AttachMode::Nbd) {
            match nbd(device, place, nbd_process) {
                Ok(nbd) => {
                    return Ok(Self {
                        block: Some(Block::Nbd(nbd)),
                        ..Self::default()
                    });
                }
                Err(e) if mode == AttachMode::Nbd => return Err(no_nbd(&e).caused_by(e)),
                Err(e) => notes.push(format!("no kernel nbd: {e}")),
            }
        }
        if matches!(mode, AttachMode::Auto | AttachMode::Fuse) {
            match fuse(device, place) {
                Ok(file) => {
                    let mut attached = Self {
                        file: Some(file),
                        place: Some(place.mount.clone()),
                        block: None,
                        notes,
                    };
                    attached.add_loop_device(device);
                    return Ok(attached);
                }
                Err(e) if mode == AttachMode::Fuse => return Err(no_fuse(&e).caused_by(e)),
                Err(e) => notes.push(format!("no FUSE: {e}")),
            }
        }
        Ok(Self {
            notes,
            ..Self::default()
        })
    }

    fn add_loop_device(&mut self, device: &Arc<Device>) {
        let Some(file) = &self.file else { return };
        if !rustix::process::geteuid().is_root() {
            return;
        }
        match LoopDevice::attach(file.path(), device.sector_size(), device.read_only()) {
            Ok(found) => {
                file.punch_holes_by_zeroing();
                self.block = Some(Block::Loop(found));
            }
            Err(e) => self.notes.push(format!("no loop device: {e}")),
        }
    }

    /// What it is, in a word: `nbd`, `loop`, `fuse` or `none`.
    pub fn kind(&self) -> &'static str {
        match (&self.block, &self.file) {
            (Some(Block::Nbd(_)), _) => "nbd",
            (Some(Block::Loop(_)), _) => "loop",
            (None, Some(_)) => "fuse",
            (None, None) => "none",
        }
    }

    /// The block device, or the file where there is none.
    pub fn path(&self) -> Option<PathBuf> {
        let block = self.block.as_ref().map(|block| block.device().path());
        block.or_else(|| self.file.as_ref().map(|file| file.path().to_owned()))
    }

    /// The process that configured the kernel's nbd device, where it is one.
    pub fn nbd_process(&self) -> Option<u32> {
        match &self.block {
            Some(Block::Nbd(nbd)) => Some(nbd.process()),
            _ => None,
        }
    }

    /// Connections to the server that are the attachment's own.
    pub fn own_connections(&self) -> usize {
        if self.nbd_process().is_some() {
            nbd_kernel::CONNECTIONS
        } else {
            0
        }
    }

    /// Who uses it, in words.
    pub fn user(&self) -> Option<String> {
        let block = self.block.as_ref().and_then(|block| block.device().user());
        block.or_else(|| {
            let file = self.file.as_ref()?.path().to_owned();
            block::opener_of(&[file])
        })
    }

    /// Whether all of it stands still; somebody else may have taken it down.
    pub fn stands(&self) -> bool {
        let block = match &self.block {
            Some(Block::Nbd(nbd)) => nbd.is_attached(),
            Some(Block::Loop(found)) => found.is_attached(),
            None => true,
        };
        block && self.file.as_ref().is_none_or(FuseFile::is_mounted)
    }

    /// Where news of [`Self::missing`] connections come in.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        match &self.block {
            Some(Block::Nbd(nbd)) => nbd.events(),
            _ => None,
        }
    }

    /// How many of its own connections the kernel has given up.
    pub fn missing(&mut self) -> usize {
        match &mut self.block {
            Some(Block::Nbd(nbd)) => nbd.missing(),
            _ => 0,
        }
    }

    /// Replaces them. The server must have ended its side of each before: the kernel sends their
    /// requests again, and an old write that is still unread there must not come after a new one.
    pub fn mend(&mut self) -> io::Result<()> {
        match &mut self.block {
            Some(Block::Nbd(nbd)) => nbd.mend(),
            _ => Ok(()),
        }
    }

    /// Writes everything out and takes it down, the last built first.
    ///
    /// Errors: `Busy` (exit 5) while somebody uses it; what is still in use then still stands, and
    /// this may be called again.
    pub fn detach(&mut self) -> Result<()> {
        if let Some(block) = &self.block {
            let path = block.device().path();
            if let Some(user) = wait_for_visitors(block.device()) {
                return Err(in_use(&path, &user));
            }
            patiently(|| block.take_down()).map_err(|e| detach_error(&path, e))?;
            self.block = None;
        }
        if let Some(file) = &mut self.file {
            let path = file.path().to_owned();
            patiently(|| file.unmount()).map_err(|e| {
                match block::opener_of(std::slice::from_ref(&path)) {
                    Some(user) => in_use(&path, &user),
                    None => detach_error(&path, e),
                }
            })?;
            self.file = None;
        }
        if let Some(place) = self.place.take() {
            let _ = fs::remove_dir(place);
        }
        Ok(())
    }
}

impl Block {
    fn device(&self) -> &BlockDevice {
        match self {
            Self::Nbd(nbd) => &nbd.block,
            Self::Loop(found) => &found.block,
        }
    }

    fn take_down(&self) -> io::Result<()> {
        // Gone already, by somebody else's hand: nothing to write out.
        let there = match self {
            Self::Nbd(nbd) => nbd.is_attached(),
            Self::Loop(found) => found.is_attached(),
        };
        if !there {
            return Ok(());
        }
        self.device().flush()?;
        match self {
            // Held exclusively, so that nobody mounts it at the last moment.
            Self::Nbd(nbd) => self
                .device()
                .open(false, true)
                .and_then(|_held| nbd.detach()),
            Self::Loop(found) => found.detach(),
        }
    }
}

/// Takes down what a server that is gone left in `place`; `nbd_process` as of
/// [`Attachment::new`]. What a reconnect can still save, an nbd
/// device in use, is left: its user is given back in words.
pub fn clear_dead(place: &Place, nbd_process: u32) -> Result<Option<String>> {
    let found = find_nbd(place, nbd_process);
    if let Some(nbd) = found {
        let path = nbd.block.path();
        if let Some(user) = nbd.block.user() {
            return Ok(Some(format!("{} is {user}", path.display())));
        }
        nbd.detach().map_err(|e| detach_error(&path, e))?;
    }
    for found in LoopDevice::over_files_in(&place.mount) {
        // In use: it goes with its last user, who gets errors until then. There is no way back.
        let _ = found.detach().or_else(|_| found.detach_when_unused());
    }
    fuse_mount::unmount_dead(&place.mount)
        .map_err(|e| Error::device("can't unmount a dead server's folder").caused_by(e))
        .map_err(|e| e.on(place.mount.display()))?;
    let _ = fs::remove_dir(&place.mount);
    Ok(None)
}

fn find_nbd(place: &Place, nbd_process: u32) -> Option<NbdDevice> {
    NbdDevice::find(&place.identifier, nbd_process)
}

fn nbd(device: &Arc<Device>, place: &Place, nbd_process: u32) -> io::Result<NbdDevice> {
    let options = NbdOptions {
        socket: place.socket.clone(),
        identifier: place.identifier.clone(),
        size_bytes: device.size_bytes(),
        block_size: device.sector_size(),
    };
    match find_nbd(place, nbd_process) {
        Some(waiting) => waiting.attach_again(&options),
        None => NbdDevice::attach(&options),
    }
}

fn fuse(device: &Arc<Device>, place: &Place) -> io::Result<FuseFile> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&place.mount)?;
    FuseFile::mount(device, &place.mount, &place.name)
        .inspect_err(|_| drop(fs::remove_dir(&place.mount)))
}

/// Waits while only short visitors use it. udev, blkid and file managers look at every new device.
fn wait_for_visitors(device: &BlockDevice) -> Option<String> {
    let end = Instant::now() + SHORT_VISIT;
    loop {
        let user = device.user()?;
        if device.lasting_user().is_some() || Instant::now() > end {
            return Some(user);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Tries again while it is busy, for as long as short visitors stay.
fn patiently(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let end = Instant::now() + SHORT_VISIT;
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

fn no_nbd(error: &io::Error) -> Error {
    let failed = Error::device("can't attach by the kernel's nbd driver");
    match error.kind() {
        io::ErrorKind::PermissionDenied => failed.hint("root, or --attach fuse"),
        io::ErrorKind::NotFound => failed.hint("modprobe nbd, or --attach fuse"),
        _ => failed.hint("--attach fuse, or --attach none for the NBD socket alone"),
    }
}

fn no_fuse(_: &io::Error) -> Error {
    Error::device("can't attach under FUSE")
        .hint("install fuse3 and have /dev/fuse, or --attach none for the NBD socket alone")
}

fn in_use(path: &Path, user: &str) -> Error {
    Error::busy(format!("it is {user}"))
        .on(path.display())
        .hint("end that first, or --deferred to close it when the last user is gone")
}

fn detach_error(path: &Path, error: io::Error) -> Error {
    let failed = match error.kind() {
        io::ErrorKind::ResourceBusy => Error::busy("it is in use"),
        _ => Error::device("can't detach it"),
    };
    failed.caused_by(error).on(path.display())
}
