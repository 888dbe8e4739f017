//! How much memory this process may still take, asked before a KDF takes it: under a limit the
//! kernel kills, it doesn't refuse.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result};

/// Checks that `need_bytes` can be had for a key slot's `what`.
///
/// Errors: `Memory`, naming the need and what is available.
pub(super) fn check(what: &str, need_bytes: u64) -> Result<()> {
    let Some(available) = available() else {
        return Ok(());
    };
    if need_bytes <= available.bytes {
        return Ok(());
    }
    Err(Error::memory(format!(
        "key slot needs {} for {what}, {} are available{}",
        spelled(need_bytes.next_multiple_of(1 << 10)),
        spelled(available.bytes),
        available.limited_by
    ))
    .hint("free memory, raise the limit, or use another key slot"))
}

/// A size in words, in the unit that keeps it exact enough: whole MiB from 1 MiB on.
pub(super) fn spelled(bytes: u64) -> String {
    if bytes >= 1 << 20 {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

/// What is left under the tightest limit, and which one that is.
struct Available {
    bytes: u64,
    limited_by: &'static str,
}

/// `None` where nothing is known (no /proc, no limits): the allocation itself then decides.
fn available() -> Option<Available> {
    let root = Path::new("/");
    let status = read(root, "proc/self/status");
    [
        (
            read(root, "proc/meminfo").and_then(|text| system_bytes(&text)),
            "",
        ),
        (cgroup_bytes(root), " under the control group's limit"),
        (
            rlimit_bytes(Resource::As, status.as_deref(), "VmSize:"),
            " under the limit on address space",
        ),
        (
            rlimit_bytes(Resource::Data, status.as_deref(), "VmData:"),
            " under the limit on data size",
        ),
    ]
    .into_iter()
    .filter_map(|(bytes, limited_by)| {
        Some(Available {
            bytes: bytes?,
            limited_by,
        })
    })
    .min_by_key(|available| available.bytes)
}

/// What the system can give without killing: what it counts as available, and free swap, since
/// others can move there. Never more than there is RAM: Argon2 itself must not swap.
fn system_bytes(meminfo: &str) -> Option<u64> {
    let available = kib_field(meminfo, "MemAvailable:")?;
    let swap = kib_field(meminfo, "SwapFree:").unwrap_or(0);
    let total = kib_field(meminfo, "MemTotal:").unwrap_or(u64::MAX);
    Some(available.saturating_add(swap).min(total))
}

fn rlimit_bytes(resource: Resource, status: Option<&str>, used_field: &str) -> Option<u64> {
    let limit = getrlimit(resource).current?;
    let used = status
        .and_then(|status| kib_field(status, used_field))
        .unwrap_or(0);
    Some(limit.saturating_sub(used))
}

/// What is left in this process's memory control group and all above it, versions 1 and 2.
/// Source: Linux `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`.
fn cgroup_bytes(root: &Path) -> Option<u64> {
    let groups = read(root, "proc/self/cgroup")?;
    let mounts = read(root, "proc/self/mountinfo")?;
    groups
        .lines()
        .filter_map(|group| {
            // hierarchy-ID:controller-list:cgroup-path
            let mut fields = group.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let version = if controllers.is_empty() {
                &V2
            } else if controllers.split(',').any(|name| name == "memory") {
                &V1
            } else {
                return None;
            };
            mounts
                .lines()
                .find_map(|mount| version.bytes_under(root, mount, path))
        })
        .min()
}

/// Where a version of control groups keeps what.
struct CgroupFiles {
    file_system: &'static str,
    /// What the mount's options must hold, if anything.
    option: Option<&'static str>,
    limit: &'static str,
    usage: &'static str,
    /// Fields of memory.stat that count page cache, which gives way.
    reclaimable: &'static [&'static str],
}

const V2: CgroupFiles = CgroupFiles {
    file_system: "cgroup2",
    option: None,
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: &["inactive_file", "active_file", "slab_reclaimable"],
};

const V1: CgroupFiles = CgroupFiles {
    file_system: "cgroup",
    option: Some("memory"),
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
};

impl CgroupFiles {
    /// The tightest headroom from the group `path` up to the top of what `mount` (a line of
    /// mountinfo) shows of the hierarchy; `None` if it is another file system.
    fn bytes_under(&self, root: &Path, mount: &str, path: &str) -> Option<u64> {
        // … root mount-point options [fields] - type source super-options; source: proc(5).
        let (left, right) = mount.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (mount_root, mount_point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (file_system, options) = (right.next()?, right.nth(1).unwrap_or(""));
        let wanted = file_system == self.file_system
            && self
                .option
                .is_none_or(|option| options.split(',').any(|o| o == option));
        if !wanted {
            return None;
        }
        let top = root.join(mount_point.trim_start_matches('/'));
        // A container sees its own group as the mount's root, under whichever name.
        let below = Path::new(path)
            .strip_prefix(mount_root)
            .unwrap_or(Path::new(""));
        let group = top.join(below.strip_prefix("/").unwrap_or(below));
        group
            .ancestors()
            .take_while(|group| group.starts_with(&top))
            .filter_map(|group| self.headroom_bytes(group))
            .min()
    }

    fn headroom_bytes(&self, group: &Path) -> Option<u64> {
        // "max" (no limit) is no number.
        let limit: u64 = read(group, self.limit)?.trim().parse().ok()?;
        let usage: u64 = read(group, self.usage)?.trim().parse().ok()?;
        let stat = read(group, "memory.stat").unwrap_or_default();
        let reclaimable = self
            .reclaimable
            .iter()
            .filter_map(|name| field(&stat, name))
            .fold(0, u64::saturating_add);
        Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
    }
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(name))
            .then(|| words.next()?.parse().ok())
            .flatten()
    })
}

/// A field in kB (which are KiB here; source: proc(5)), in bytes.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.checked_mul(1 << 10)
}

fn read(directory: &Path, name: &str) -> Option<String> {
    let path: PathBuf = directory.join(name);
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in files {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().expect("files have a folder")).expect("mkdir");
            fs::write(path, content).expect("write");
        }
        tree
    }

    #[test]
    fn version_2_counts_the_tightest_group_and_lets_page_cache_give_way() {
        let tree = tree(&[
            ("proc/self/cgroup", "0::/user/slice\n"),
            (
                "proc/self/mountinfo",
                "24 1 0:22 / / rw - ext4 /dev/sda rw\n\
                 30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/user/memory.max", "1000000\n"),
            ("sys/fs/cgroup/user/memory.current", "700000\n"),
            (
                "sys/fs/cgroup/user/memory.stat",
                "anon 5\ninactive_file 100000\nactive_file 50000\n",
            ),
            ("sys/fs/cgroup/user/slice/memory.max", "max\n"),
            ("sys/fs/cgroup/user/slice/memory.current", "700000\n"),
        ]);
        assert_eq!(cgroup_bytes(tree.path()), Some(450_000));
    }

    #[test]
    fn version_1_in_a_container_that_sees_its_group_as_the_root() {
        let tree = tree(&[
            (
                "proc/self/cgroup",
                "9:name=systemd:/x\n4:memory,hugetlb:/docker/abc\n0::/\n",
            ),
            (
                "proc/self/mountinfo",
                "31 23 0:28 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 32 23 0:29 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "300\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "200\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "total_inactive_file 500\n",
            ),
        ]);
        assert_eq!(cgroup_bytes(tree.path()), Some(300));
    }

    #[test]
    fn no_limit_is_none() {
        let tree = tree(&[
            ("proc/self/cgroup", "0::/\n"),
            (
                "proc/self/mountinfo",
                "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n",
            ),
            ("cg/memory.max", "max\n"),
        ]);
        assert_eq!(cgroup_bytes(tree.path()), None);
        assert_eq!(cgroup_bytes(Path::new("/nonexistent")), None);
    }

    #[test]
    fn swap_counts_up_to_the_size_of_ram() {
        let meminfo = "MemTotal: 1000 kB\nMemAvailable:  300 kB\nSwapFree: 200 kB\n";
        assert_eq!(system_bytes(meminfo), Some(500 << 10));
        let meminfo = "MemTotal: 1000 kB\nMemAvailable:  300 kB\nSwapFree: 9000 kB\n";
        assert_eq!(system_bytes(meminfo), Some(1000 << 10));
    }

    #[test]
    fn this_machine_cannot_give_an_exabyte() {
        let error = check("Argon2", 1 << 60).expect_err("an exabyte");
        assert_eq!(error.kind(), ErrorKind::Memory);
        assert!(
            error
                .what()
                .starts_with("key slot needs 1099511627776 MiB for Argon2, ")
        );
        check("Argon2", 1 << 10).expect("a kilobyte");
    }
}
