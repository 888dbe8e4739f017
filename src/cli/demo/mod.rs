//! `luks demo`: a small volume, opened the best way this machine has, with a file put in and read
//! back. Every step is a command that a person could have typed, and is shown.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::engine::{EngineArgs, parse};
use super::{DONE, print};
use crate::error::{Error, Result};

mod copy;

/// A ready LUKS2 header with one key slot; its origin is told in `README.md` beside it.
const HEADER: &[u8] = include_bytes!("header.img");
const PASSPHRASE: &[u8] = b"open sesame";
/// The volume's file: a header of 1 MiB and 32 MiB of data.
const IMAGE_BYTES: u64 = 33 << 20;
const NOTE_NAME: &str = "note.txt";
const NOTE: &str = "Written through an encrypted volume, and read back from it.\n";

/// Makes a small LUKS2 volume, puts a file in it through a file system, and reads it back
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  luks demo")]
pub(crate) struct DemoArgs {
    /// Keep the folder with the volume
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

impl DemoArgs {
    pub(crate) fn run(self) -> Result<u8> {
        parse(self.engine.name())?;
        let mut demo = Demo::new(self.keep, self.engine.name())?;
        let how = demo.play()?;
        print(format_args!("\n{how}"))?;
        if self.keep {
            print(format_args!("The volume is {}", demo.image().display()))?;
        }
        Ok(DONE)
    }
}

/// A demonstration under way; what it has opened or mounted is undone when it is dropped.
struct Demo {
    folder: PathBuf,
    engine: String,
    keep: bool,
    name: String,
    is_open: bool,
    mounted: bool,
}

/// Where an open volume can be reached.
enum Reached {
    /// A block device, which can be mounted.
    Device(PathBuf),
    /// A file, which file system tools take.
    File(PathBuf),
    /// An NBD server on this unix socket.
    Socket(PathBuf),
}

impl Demo {
    fn new(keep: bool, engine: &str) -> Result<Self> {
        let name = format!("demo-{}", std::process::id());
        let folder = std::env::temp_dir().join(format!("luks-{name}-{:016x}", random()?));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|e| failed("make a temporary folder", e).on(folder.display()))?;
        let demo = Self {
            folder,
            engine: engine.to_owned(),
            keep,
            name,
            is_open: false,
            mounted: false,
        };
        demo.write_file("key", PASSPHRASE)?;
        demo.write_file(NOTE_NAME, NOTE.as_bytes())?;
        let image = demo.write_file("volume.img", HEADER)?;
        image
            .set_len(IMAGE_BYTES)
            .map_err(|e| failed("make the volume's file", e).on(demo.image().display()))?;
        Ok(demo)
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<File> {
        let path = self.path(name);
        let open = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        open.and_then(|mut file| file.write_all(bytes).map(|()| file))
            .map_err(|e| failed("write a file", e).on(path.display()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("volume.img")
    }

    /// Writes the note, closes, opens again, and reads it back. Returns what was shown, in words.
    fn play(&mut self) -> Result<&'static str> {
        print(format_args!("$ cd {}", self.folder.display()))?;
        let reached = self.open()?;
        let how = self.put(&reached)?;
        self.close()?;
        let reached = self.open()?;
        let found = self.get(&reached, how)?;
        self.close()?;
        if found != NOTE.as_bytes() {
            return Err(Error::device("what was read back isn't what was written")
                .on(self.image().display())
                .hint("this is a defect of luks: please report it"));
        }
        Ok(match how {
            How::Mounted => "The file was read back through a mounted file system.",
            How::Unmounted => {
                "The file was read back from a file system, without mounting it (that needs root and a \
                 block device)."
            }
            How::Bytes => {
                "The bytes were read back (a file system needs mkfs.ext4 and debugfs here)."
            }
        })
    }

    fn open(&mut self) -> Result<Reached> {
        let name = self.name.clone();
        let engine = self.engine.clone();
        let mut command = vec!["open", "volume.img", &name, "--key-file", "key"];
        if engine != "auto" {
            command.extend(["--engine", &engine]);
        }
        let answer = self.luks(&command)?;
        self.is_open = true;
        let answer = answer.trim();
        print(answer)?;
        if let Some((_, socket)) = answer.split_once("?socket=") {
            return Ok(Reached::Socket(PathBuf::from(socket)));
        }
        let path = PathBuf::from(answer);
        let metadata = fs::metadata(&path).map_err(|e| failed("see the volume", e).on(answer))?;
        Ok(match metadata.file_type().is_block_device() {
            true => Reached::Device(path),
            false => Reached::File(path),
        })
    }

    fn close(&mut self) -> Result<()> {
        let name = self.name.clone();
        self.luks(&["close", &name])?;
        self.is_open = false;
        Ok(())
    }

    fn put(&mut self, reached: &Reached) -> Result<How> {
        let can_format = is_installed("mkfs.ext4") && is_installed("debugfs");
        match reached {
            Reached::Device(path) | Reached::File(path) if can_format => {
                self.tool("mkfs.ext4", &["-q", "-F", text(path)])?;
                if matches!(reached, Reached::Device(_)) && self.mount(path, &[]) {
                    self.tool("cp", &[NOTE_NAME, "mnt/"])?;
                    self.unmount()?;
                    return Ok(How::Mounted);
                }
                let write = format!("write {NOTE_NAME} {NOTE_NAME}");
                self.tool("debugfs", &["-w", "-R", &write, text(path)])?;
                Ok(How::Unmounted)
            }
            Reached::Device(path) | Reached::File(path) => {
                let file = File::options().write(true).open(path);
                file.and_then(|mut file| file.write_all(NOTE.as_bytes()).and(file.sync_all()))
                    .map_err(|e| failed("write to the volume", e).on(path.display()))?;
                Ok(How::Bytes)
            }
            Reached::Socket(path) if can_format => {
                // The file system is made in a file of the volume's size and copied in whole.
                let client = copy::Client::connect(path)?;
                let size = format!("{}K", client.size_bytes() >> 10);
                self.tool("mkfs.ext4", &["-q", "plain.img", &size])?;
                let write = format!("write {NOTE_NAME} {NOTE_NAME}");
                self.tool("debugfs", &["-w", "-R", &write, "plain.img"])?;
                print("(plain.img is copied into the volume over NBD)")?;
                client.copy_in(&self.path("plain.img"))?;
                Ok(How::Unmounted)
            }
            Reached::Socket(path) => {
                print("(the note is written to the volume's start over NBD)")?;
                copy::Client::connect(path)?.copy_in(&self.path(NOTE_NAME))?;
                Ok(How::Bytes)
            }
        }
    }

    fn get(&mut self, reached: &Reached, how: How) -> Result<Vec<u8>> {
        let cat = format!("cat {NOTE_NAME}");
        let all = match (reached, how) {
            (Reached::Device(path), How::Mounted) => {
                if !self.mount(path, &["-o", "ro"]) {
                    return Err(Error::device("it could be mounted once, and now can't be"));
                }
                let found = self.tool("cat", &[&format!("mnt/{NOTE_NAME}")])?;
                self.unmount()?;
                return Ok(found);
            }
            (Reached::Device(path) | Reached::File(path), How::Unmounted) => {
                return self.tool("debugfs", &["-R", &cat, text(path)]);
            }
            (Reached::Device(path) | Reached::File(path), _) => path.clone(),
            (Reached::Socket(path), _) => {
                let back = self.path("back.img");
                print("(the volume is copied to back.img over NBD)")?;
                copy::Client::connect(path)?.copy_out(&back)?;
                if how == How::Unmounted {
                    return self.tool("debugfs", &["-R", &cat, "back.img"]);
                }
                back
            }
        };
        let mut found = vec![0; NOTE.len()];
        File::open(&all)
            .and_then(|mut file| io::Read::read_exact(&mut file, &mut found))
            .map_err(|e| failed("read the volume", e).on(all.display()))?;
        Ok(found)
    }

    /// Mounts where that is allowed here; a refusal is no failure of the volume.
    fn mount(&mut self, device: &Path, options: &[&str]) -> bool {
        if !rustix::process::geteuid().is_root() || fs::create_dir_all(self.path("mnt")).is_err() {
            return false;
        }
        let args = [options, &[text(device), "mnt"]].concat();
        self.mounted = self.tool("mount", &args).is_ok();
        self.mounted
    }

    fn unmount(&mut self) -> Result<()> {
        self.tool("umount", &["mnt"])?;
        self.mounted = false;
        Ok(())
    }

    /// Runs this very program.
    fn luks(&self, args: &[&str]) -> Result<String> {
        let program = std::env::current_exe().map_err(|e| failed("find this program", e))?;
        let output = self.run(program.as_os_str(), "luks", args)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    fn tool(&self, name: &str, args: &[&str]) -> Result<Vec<u8>> {
        let program = installed(name).unwrap_or_else(|| PathBuf::from(name));
        self.run(program.as_os_str(), name, args)
    }

    /// Shows the command, runs it in the demo's folder, and returns what it printed.
    fn run(&self, program: &OsStr, name: &str, args: &[&str]) -> Result<Vec<u8>> {
        let shown: Vec<_> = args.iter().map(|arg| quoted(arg)).collect();
        print(format_args!("$ {name} {}", shown.join(" ")))?;
        let output = Command::new(program)
            .args(args)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| failed("run it", e).on(name))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().collect::<Vec<_>>().join("; ");
        Err(Error::device(format!(
            "{name} failed ({}): {said}",
            output.status
        )))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if self.mounted {
            let _ = self.unmount();
        }
        if self.is_open {
            let _ = self.close();
        }
        // Never through a mount that is still there.
        if !self.keep && !self.mounted && !self.is_open {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// How the note got in, and gets out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Through a mounted file system.
    Mounted,
    /// In a file system, by its tools.
    Unmounted,
    /// At the volume's start, without a file system.
    Bytes,
}

fn failed(what: &str, error: io::Error) -> Error {
    Error::device(format!("can't {what}")).caused_by(error)
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::device("the system gives no random bytes").caused_by(e))?;
    Ok(u64::from_ne_bytes(bytes))
}

fn is_installed(name: &str) -> bool {
    installed(name).is_some()
}

/// A tool's path; those of administrators are often outside an ordinary user's search path.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("made from UTF-8 by this program")
}

fn quoted(arg: &str) -> String {
    match arg.contains(' ') {
        true => format!("'{arg}'"),
        false => arg.to_owned(),
    }
}
