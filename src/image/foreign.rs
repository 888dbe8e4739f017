//! Formats that aren't raw LUKS, known by their magic numbers, so that an error can name them.

use std::path::Path;

use crate::storage::Storage;

/// A format that was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A virtual machine's disk image that qemu reads.
    Disk {
        /// What people call it.
        name: &'static str,
        /// qemu's name for its driver.
        qemu_format: &'static str,
    },
    /// An encrypted volume of a kind that isn't supported.
    Encrypted(&'static str),
}

struct Magic {
    /// From the start, or (where negative) from the end.
    offset_bytes: i64,
    bytes: &'static [u8],
    is: Foreign,
}

const fn disk(
    offset_bytes: i64,
    bytes: &'static [u8],
    name: &'static str,
    qemu_format: &'static str,
) -> Magic {
    Magic {
        offset_bytes,
        bytes,
        is: Foreign::Disk { name, qemu_format },
    }
}

/// BitLocker To Go looks like FAT, but for the identifier 4967d63b-2e29-4ad8-8399-f6a339e3d001.
const BITLOCKER_TO_GO: &[u8] = b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01";

/// Sources: qemu `docs/interop/qcow2.txt` and `parallels.txt`; VMware's "Virtual Disk Format 5.0";
/// Microsoft's MS-VHDX and "Virtual Hard Disk Image Format Specification"; VirtualBox's VDI
/// header; for BitLocker the boot sector's OEM name; for FileVault 2 the Core Storage physical
/// volume header.
const MAGICS: [Magic; 14] = [
    disk(0, b"QFI\xfb\0\0\0\x01", "a qcow image", "qcow"),
    disk(0, b"QFI\xfb", "a qcow2 image", "qcow2"),
    disk(0, b"QED\0", "a QED image", "qed"),
    disk(0, b"KDMV", "a VMDK image", "vmdk"),
    disk(0, b"COWD", "a VMDK image", "vmdk"),
    disk(0, b"# Disk DescriptorFile", "a VMDK descriptor", "vmdk"),
    disk(0, b"vhdxfile", "a VHDX image", "vhdx"),
    disk(0, b"conectix", "a VHD image", "vpc"),
    disk(64, b"\x7f\x10\xda\xbe", "a VDI image", "vdi"),
    disk(0, b"WithoutFreeSpace", "a Parallels image", "parallels"),
    disk(0, b"WithouFreSpacExt", "a Parallels image", "parallels"),
    Magic {
        offset_bytes: 3,
        bytes: b"-FVE-FS-",
        is: Foreign::Encrypted("BitLocker"),
    },
    Magic {
        offset_bytes: 424,
        bytes: BITLOCKER_TO_GO,
        is: Foreign::Encrypted("BitLocker"),
    },
    Magic {
        offset_bytes: 88,
        bytes: b"CS\x01\0",
        is: Foreign::Encrypted("FileVault 2"),
    },
];

/// A fixed VHD is raw with a footer of 512 bytes. Source: as above.
const VHD_FOOTER: Magic = disk(-512, b"conectix", "a VHD image", "vpc");

/// What `storage` is, where it has a magic number that is known here. Called only once it is
/// known not to begin with LUKS.
pub fn recognise(storage: &dyn Storage) -> Option<Foreign> {
    let size_bytes = storage.size_bytes().ok()?;
    let found = |magic: &&Magic| {
        let offset = match u64::try_from(magic.offset_bytes) {
            Ok(offset) => Some(offset),
            Err(_) => size_bytes.checked_sub(magic.offset_bytes.unsigned_abs()),
        };
        let mut bytes = vec![0; magic.bytes.len()];
        offset.is_some_and(|offset| storage.read_at(&mut bytes, offset).is_ok())
            && bytes == magic.bytes
    };
    MAGICS
        .iter()
        .chain([&VHD_FOOTER])
        .find(found)
        .map(|magic| magic.is)
}

impl Foreign {
    /// It in words, for "it is …".
    pub fn description(self) -> String {
        match self {
            Self::Disk { name, .. } => format!("{name}, not a raw disk"),
            Self::Encrypted(name) => {
                format!("a {name} volume, which isn't supported by this version")
            }
        }
    }

    /// The commands that open it, where there are some. `nbdfuse` shows what `qemu-nbd` serves as
    /// a plain file, without root.
    pub fn how_to_open(self, path: &Path) -> Option<String> {
        let Self::Disk { qemu_format, .. } = self else {
            return None;
        };
        let path = quoted(path);
        Some(format!(
            "mkdir raw && nbdfuse raw [ qemu-nbd -f {qemu_format} {path} ] & then open raw/nbd \
             (fusermount3 -u raw ends it)"
        ))
    }
}

/// The path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    match text.chars().all(plain) && !text.is_empty() {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
