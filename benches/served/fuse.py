"""dd on the block device that is a loop device over FUSE: ours encrypted, nbdfuse's plaintext."""

import os
import subprocess

from . import clients
from .machine import Failed, drop_caches, end, find, need, run, wait_until
from .passes import SUBJECT
from .servers import Server

MIB = 1 << 20
# Cell: block size, bytes in all, dd's flags.
LOADS = {
    "dd-read-1m": ("read", MIB, 512 * MIB, []),
    "dd-read-1m-direct": ("read", MIB, 512 * MIB, ["iflag=direct"]),
    "dd-write-1m": ("write", MIB, 512 * MIB, ["conv=fdatasync,notrunc"]),
    "dd-write-1m-direct": ("write", MIB, 512 * MIB, ["oflag=direct", "conv=fdatasync,notrunc"]),
    "dd-read-4k": ("read", 4096, 256 * MIB, []),
    "dd-read-4k-direct": ("read", 4096, 24 * MIB, ["iflag=direct"]),
    "dd-write-4k": ("write", 4096, 256 * MIB, ["conv=fdatasync,notrunc"]),
    "dd-write-4k-direct": ("write", 4096, 24 * MIB, ["oflag=direct", "conv=fdatasync,notrunc"]),
}


def fuse(fleet, rows, rounds):
    need("nbdkit", "nbdfuse", "fusermount3", "losetup", "blockdev", "dd")
    if os.geteuid() != 0:
        raise Failed("loop devices need root")
    devices = {
        "fuse": ours(fleet),
        "nbdfuse": theirs(fleet, "nbdfuse", []),
        # A loop device without a cache below its own, as ours is. Ours stands beside the faster.
        "nbdfuse-dio": theirs(fleet, "nbdfuse-dio", ["--direct-io=on"]),
    }
    names = list(devices)
    for number in range(1, rounds + 1):
        for index, (cell, load) in enumerate(LOADS.items()):
            first = (number + index) % len(names)
            for name in names[first:] + names[:first]:
                try:
                    rows.add(name, cell, number, **copy(fleet, devices[name], *load))
                except Failed as e:
                    rows.add(name, cell, number, error=str(e))


def copy(fleet, device, direction, block_bytes, total_bytes, flags):
    total_bytes = min(total_bytes, fleet.volumes.payload_bytes)
    flush(device)
    ends = [f"if={device}", "of=/dev/null"]
    if direction == "write":
        ends = [f"if={fleet.volumes.random_file}", f"of={device}"]
    count = [f"bs={block_bytes}", f"count={total_bytes // block_bytes}"]
    return clients.dd(ends + count + flags, timeout_s=180)


def flush(device):
    """What the kernel holds of the device is written and forgotten, here and in the file below."""
    run([find("blockdev"), "--flushbufs", device], 60)
    drop_caches()


def ours(fleet):
    fleet.fill(fleet.volume(SUBJECT))
    luks = fleet.luks[""]
    name = f"bench-{os.getpid()}"
    path = fleet.volumes.path(fleet.volume(SUBJECT))
    key = ["--key-file", fleet.volumes.key_file]
    out, _ = run([luks, "open", path, name, "--attach", "fuse", *key], 60)
    fleet.place.undo(run, [luks, "close", name], 60)
    device = out.strip().splitlines()[0]
    if not device.startswith("/dev/"):
        raise Failed(f"luks open gave no block device: {device}")
    return device


def theirs(fleet, name, loop_options):
    server = fleet.start("nbdkit")
    place = fleet.place
    folder = place.path(name)
    os.mkdir(folder)
    mounted = subprocess.Popen(
        [find("nbdfuse"), f"{folder}/disk", server.uri],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    place.undo(end, mounted)
    place.undo(run, [find("fusermount3"), "-u", "-z", folder], 10)
    wait_until(lambda: os.path.exists(f"{folder}/disk"), 10, "nbdfuse: no file appears")
    out, _ = run([find("losetup"), "--find", "--show", *loop_options, f"{folder}/disk"], 20)
    place.undo(run, [find("losetup"), "-d", out.strip()], 20)
    return out.strip()
