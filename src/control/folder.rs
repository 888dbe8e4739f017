//! The folder of all volumes that are open here, and each volume's own.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::attach::Place;
use crate::error::{Error, Result};

/// Longest name of a volume, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Longest path of a unix socket, in bytes. Source: unix(7), `sun_path` with its NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// How long a look at a dead volume by another process may hold its lock.
const LOOK: Duration = Duration::from_millis(500);

const CONTROL_SOCKET: &str = "control.sock";

/// `$XDG_RUNTIME_DIR/luks`, root's `/run/luks`, or `/tmp/luks-UID`: this user's alone.
#[derive(Clone, Debug)]
pub struct StateFolder {
    path: PathBuf,
}

/// One volume's folder.
#[derive(Clone, Debug)]
pub struct VolumeFolder {
    path: PathBuf,
    name: String,
}

/// A volume's folder that is this process's until it is dropped or the process ends.
#[derive(Debug)]
pub struct Held {
    /// The folder.
    pub folder: VolumeFolder,
    _lock: File,
}

impl StateFolder {
    /// The folder for what is opened now; made if it is missing.
    ///
    /// Errors: `Device` where it can't be made or isn't this user's alone.
    pub fn open() -> Result<Self> {
        let path = candidates()
            .into_iter()
            .next()
            .unwrap_or_else(|| "/run/luks".into());
        let folder = Self { path };
        folder.make().map_err(|e| {
            Error::device("can't use the folder for open volumes")
                .on(folder.path.display())
                .caused_by(e)
        })?;
        Ok(folder)
    }

    /// Every folder that volumes of this user may be in. Root has two: one with and one without
    /// a login session.
    pub fn existing() -> Vec<Self> {
        candidates()
            .into_iter()
            .map(|path| Self { path })
            .filter(|folder| folder.check().is_ok())
            .collect()
    }

    /// The folder of the volume `name`, which may not be there.
    ///
    /// Errors: `Usage` for a name that can't be one.
    pub fn volume(&self, name: &str) -> Result<VolumeFolder> {
        check_name(name)?;
        let folder = VolumeFolder {
            path: self.path.join(name),
            name: name.to_owned(),
        };
        let longest = folder.control_socket().as_os_str().as_bytes().len();
        if let Some(over) = longest
            .checked_sub(SOCKET_PATH_BYTES_MAX)
            .filter(|&over| over > 0)
        {
            return Err(
                Error::usage("the path of the volume's sockets gets too long")
                    .on(folder.path.display())
                    .hint(format!("a name shorter by {over} bytes")),
            );
        }
        Ok(folder)
    }

    /// The volumes that have a folder, open or dead, by name.
    pub fn volumes(&self) -> Vec<VolumeFolder> {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let mut folders: Vec<_> = entries
            .flatten()
            .filter_map(|entry| self.volume(entry.file_name().to_str()?).ok())
            .filter(|folder| folder.path.is_dir())
            .collect();
        folders.sort_by(|a, b| a.name.cmp(&b.name));
        folders
    }

    fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => self.check(),
        }
    }

    /// Somebody else could have made it first, in a folder that all may write to.
    fn check(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.path)?;
        if !found.is_dir() || found.uid() != own_id() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "not a folder of yours",
            ));
        }
        if found.mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "open to others (not 0700)",
            ));
        }
        Ok(())
    }
}

fn own_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn candidates() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    // Under `sudo -E` it is the other user's, who must not own what root opens.
    let session = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| {
            path.is_absolute() && fs::metadata(path).is_ok_and(|found| found.uid() == own_id())
        });
    folders.extend(session.map(|path| path.join("luks")));
    match own_id() {
        0 => folders.push("/run/luks".into()),
        id => folders.push(format!("/tmp/luks-{id}").into()),
    }
    folders
}

fn check_name(name: &str) -> Result<()> {
    let wrong = if name.is_empty() {
        "a volume's name must not be empty"
    } else if name == "." || name == ".." || name.contains('/') {
        "a volume's name is no path"
    } else if name.chars().any(char::is_control) {
        "a volume's name must not hold control characters"
    } else if name.len() > NAME_BYTES_MAX {
        "a volume's name has at most 200 bytes"
    } else {
        return Ok(());
    };
    Err(Error::usage(wrong))
}

/// The folder of the volume `name`, wherever this user has it.
///
/// Errors: `Device` where there is none, `Usage` for what can't be a name.
pub fn find(name: &str) -> Result<VolumeFolder> {
    check_name(name)?;
    StateFolder::existing()
        .iter()
        .filter_map(|folder| folder.volume(name).ok())
        .find(|folder| folder.path.is_dir())
        .ok_or_else(|| {
            Error::device("no volume of this name is open")
                .on(name)
                .hint("luks status lists them")
        })
}

impl VolumeFolder {
    /// The volume's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is controlled.
    pub fn control_socket(&self) -> PathBuf {
        self.path.join(CONTROL_SOCKET)
    }

    /// Where it is served.
    pub fn nbd_socket(&self) -> PathBuf {
        self.path.join("nbd.sock")
    }

    /// What its server has to say once it has no terminal.
    pub fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// What is known of it without asking its server.
    pub(crate) fn state(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// Where it is attached.
    pub fn place(&self) -> Place {
        Place {
            name: self.name.clone(),
            mount: self.path.join("mount"),
            socket: self.nbd_socket(),
            identifier: format!("nbdcrypt:{}", self.path.display()),
        }
    }

    /// Makes the folder if it is missing, and takes it; `None` where a server has it.
    ///
    /// Errors: `Device` where it can't be made.
    pub fn take(&self) -> Result<Option<Held>> {
        let error = |e| {
            Error::device("can't make the volume's folder")
                .on(self.path.display())
                .caused_by(e)
        };
        let end = Instant::now() + LOOK;
        loop {
            match DirBuilder::new().mode(0o700).create(&self.path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(error(e)),
                _ => {}
            }
            match self.try_lock() {
                Ok(Some(held)) => return Ok(Some(held)),
                Ok(None) if Instant::now() > end => return Ok(None),
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                // Somebody cleared it just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound && Instant::now() < end => {}
                Err(e) => return Err(error(e)),
            }
        }
    }

    /// Takes the folder of a server that is gone; `None` where it lives, or the folder is gone.
    pub fn take_if_dead(&self) -> Option<Held> {
        self.try_lock().ok().flatten()
    }

    fn try_lock(&self) -> io::Result<Option<Held>> {
        let path = self.path.join("lock");
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            result => result?,
        }
        // The one who had it may have removed the file before letting go of it.
        let (ours, there) = (lock.metadata()?, fs::metadata(&path)?);
        if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Held {
            folder: self.clone(),
            _lock: lock,
        }))
    }
}

impl Held {
    /// Removes the folder and everything in it that is ours.
    pub fn remove(self) {
        let path = &self.folder.path;
        for file in [
            CONTROL_SOCKET,
            "nbd.sock",
            "state.json",
            "state.json.new",
            "server.log",
        ] {
            let _ = fs::remove_file(path.join(file));
        }
        let _ = fs::remove_dir(path.join("mount"));
        // Last: who finds the lock free must find nothing else.
        let _ = fs::remove_file(path.join("lock"));
        let _ = fs::remove_dir(path);
    }
}

impl AsRef<Path> for VolumeFolder {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, StateFolder) {
        let base = tempfile::tempdir().unwrap();
        let folder = StateFolder {
            path: base.path().join("luks"),
        };
        folder.make().unwrap();
        (base, folder)
    }

    #[test]
    fn names_that_are_paths_or_too_long_are_refused() {
        let (_base, folder) = folder();
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a\nb",
            &"x".repeat(201),
            &"x".repeat(150),
        ] {
            assert_eq!(
                folder.volume(name).unwrap_err().kind().exit_code(),
                1,
                "{name:?}"
            );
        }
        assert_eq!(
            folder.volume("äöü und Leerzeichen").unwrap().name(),
            "äöü und Leerzeichen"
        );
    }

    #[test]
    fn a_folder_is_held_once_and_gone_when_removed() {
        let (_base, folder) = folder();
        let volume = folder.volume("vol").unwrap();
        let held = volume.take().unwrap().unwrap();
        assert!(volume.take().unwrap().is_none());
        assert!(volume.take_if_dead().is_none());
        assert_eq!(fs::metadata(&volume).unwrap().mode() & 0o777, 0o700);
        held.remove();
        assert!(!volume.as_ref().exists());
        let again = volume.take().unwrap();
        assert!(again.is_some());
        drop(again);
        assert!(
            volume.take_if_dead().is_some(),
            "the lock ends with its holder"
        );
    }

    #[test]
    fn somebody_elses_or_an_open_folder_is_refused() {
        let (base, folder) = folder();
        fs::set_permissions(
            &folder.path,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        assert!(folder.make().is_err());
        let link = StateFolder {
            path: base.path().join("link"),
        };
        std::os::unix::fs::symlink(base.path(), &link.path).unwrap();
        assert!(link.make().is_err());
    }
}
