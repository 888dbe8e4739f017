//! What else a device may be, by its first bytes: a second LUKS2 copy left over on a device that
//! became something else must not make it LUKS again.

use crate::storage::Storage;

/// A signature: what it tells, where it lies, and its bytes.
struct Signature {
    name: &'static str,
    offset_bytes: usize,
    bytes: &'static [u8],
}

/// Signatures within the first 72 KiB, of what takes a whole device or partition. Sources: each
/// format's own description; offsets as in util-linux's libblkid.
const SIGNATURES: &[Signature] = &[
    Signature {
        name: "an LVM2 physical volume",
        offset_bytes: 0,
        bytes: b"LABELONE",
    },
    Signature {
        name: "an LVM2 physical volume",
        offset_bytes: 512,
        bytes: b"LABELONE",
    },
    Signature {
        name: "an LVM2 physical volume",
        offset_bytes: 1024,
        bytes: b"LABELONE",
    },
    Signature {
        name: "an LVM2 physical volume",
        offset_bytes: 1536,
        bytes: b"LABELONE",
    },
    Signature {
        name: "a GPT partition table",
        offset_bytes: 512,
        bytes: b"EFI PART",
    },
    Signature {
        name: "a GPT partition table",
        offset_bytes: 4096,
        bytes: b"EFI PART",
    },
    Signature {
        name: "a boot sector or partition table",
        offset_bytes: 510,
        bytes: b"\x55\xaa",
    },
    Signature {
        name: "an ext2, ext3 or ext4 file system",
        offset_bytes: 1080,
        bytes: b"\x53\xef",
    },
    Signature {
        name: "an XFS file system",
        offset_bytes: 0,
        bytes: b"XFSB",
    },
    Signature {
        name: "a Btrfs file system",
        offset_bytes: 0x10040,
        bytes: b"_BHRfS_M",
    },
    Signature {
        name: "an F2FS file system",
        offset_bytes: 1024,
        bytes: b"\x10\x20\xf5\xf2",
    },
    Signature {
        name: "a SquashFS file system",
        offset_bytes: 0,
        bytes: b"hsqs",
    },
    Signature {
        name: "an ISO 9660 file system",
        offset_bytes: 0x8001,
        bytes: b"CD001",
    },
    Signature {
        name: "an HFS+ file system",
        offset_bytes: 1024,
        bytes: b"H+\x00\x04",
    },
    Signature {
        name: "an APFS container",
        offset_bytes: 32,
        bytes: b"NXSB",
    },
    Signature {
        name: "swap space",
        offset_bytes: 4086,
        bytes: b"SWAPSPACE2",
    },
    Signature {
        name: "swap space",
        offset_bytes: 4086,
        bytes: b"SWAP-SPACE",
    },
    Signature {
        name: "a Linux RAID member",
        offset_bytes: 0,
        bytes: b"\xfc\x4e\x2b\xa9",
    },
    Signature {
        name: "a Linux RAID member",
        offset_bytes: 4096,
        bytes: b"\xfc\x4e\x2b\xa9",
    },
    Signature {
        name: "a dm-integrity device",
        offset_bytes: 0,
        bytes: b"integrt\0",
    },
    Signature {
        name: "a dm-verity device",
        offset_bytes: 0,
        bytes: b"verity\0\0",
    },
    Signature {
        name: "a bcache device",
        offset_bytes: 4120,
        bytes: b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    },
    Signature {
        name: "a VDO volume",
        offset_bytes: 0,
        bytes: b"dmvdo001",
    },
    Signature {
        name: "a qcow2 image",
        offset_bytes: 0,
        bytes: b"QFI\xfb",
    },
];

/// What begins at the start of `storage`, if it is known here.
pub(super) fn signature(storage: &dyn Storage) -> Option<&'static str> {
    let read = |offset_bytes: usize, len_bytes: usize| {
        let mut bytes = vec![0; len_bytes];
        storage
            .read_at(&mut bytes, offset_bytes as u64)
            .is_ok()
            .then_some(bytes)
    };
    let found = SIGNATURES.iter().find(|signature| {
        read(signature.offset_bytes, signature.bytes.len()).as_deref() == Some(signature.bytes)
    });
    found.map(|signature| signature.name)
}
