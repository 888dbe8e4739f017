"""A slow disk: 1 ms a storage request, and as many at a time as are asked for.

No kernel module is needed: the volume's file is seen through FUSE (nbdfuse), which asks an nbdkit
whose delay filter sleeps. Both work on many requests at once; that the file does is measured first,
by threads that read it plainly, since a file that is slow *and* serial would show nothing.
"""

import os
import random
import subprocess
import threading
import time

from . import clients
from .machine import Failed, drop_caches, end, find, need, run, say, wait_until
from .passes import SUBJECT, back_ends
from .runner import measured
from .servers import Server

DEPTH = 32
# Below this much parallelism the file is the bottleneck and nothing is learnt.
PARALLEL_MIN = 24


def slow_disk(fleet, rows, rounds, seconds):
    place = fleet.place
    need("nbdkit", "nbdfuse", "fusermount3", "fio")
    fleet.fill(fleet.volume(SUBJECT))
    path = slow_file(place, fleet.volumes.path(fleet.volume(SUBJECT)))
    parallel = parallelism(path)
    rows.add("slow-file", "slow-parallelism", 1, parallel=parallel)
    say(f"the slow file: {parallel:.1f} reads at a time when {DEPTH} are asked for")
    if parallel < PARALLEL_MIN:
        raise Failed(f"the slow file answers only {parallel:.1f} reads at a time; nothing measured")
    names = back_ends(fleet)
    servers = {name: fleet.start(name, volume_path=path) for name in names}
    for number in range(1, rounds + 1):
        for connections, depth in ((1, DEPTH), (DEPTH, 1)):
            for name, server in servers.items():
                drop_caches()
                try:
                    result = measured(server, lambda: work(fleet, server, connections, depth, seconds))
                    rows.add(name, f"slow-{connections}xqd{depth}", number, **result)
                except Failed as e:
                    rows.add(name, f"slow-{connections}xqd{depth}", number, error=str(e))
    for server in servers.values():
        server.stop()


def work(fleet, server, connections, depth, seconds):
    size = [f"--size={fleet.volumes.payload_bytes}"]
    return clients.fio(server.uri, "randread", 4096, depth, seconds, connections, extra=size)


def slow_file(place, path):
    """A file that is `path`, a millisecond a request later."""
    socket_path = place.path("slow.sock")
    Server(
        place,
        "slow-nbdkit",
        [find("nbdkit"), "-f", "-t", "128", "-U", socket_path, "--filter=delay"]
        + ["file", path, "rdelay=1ms", "wdelay=1ms"],
        socket_path,
    )
    folder = place.path("slow")
    os.mkdir(folder)
    mounted = subprocess.Popen(
        # libfuse's own limit is ten threads.
        [find("nbdfuse"), "-C", "8", "-o", "max_threads=128", f"{folder}/disk"]
        + [f"nbd+unix:///?socket={socket_path}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    place.undo(end, mounted)
    place.undo(run, [find("fusermount3"), "-u", "-z", folder], 10)
    wait_until(lambda: os.path.exists(f"{folder}/disk"), 10, "nbdfuse: no file appears")
    more_in_background(folder)
    return f"{folder}/disk"


def more_in_background(folder):
    """The kernel's own limit of requests in the background (12) is lifted where it may be."""
    device = os.stat(folder).st_dev
    control = f"/sys/fs/fuse/connections/{os.minor(device)}"
    subprocess.run(["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"], capture_output=True, check=False) if not os.path.isdir(control) else None
    for name, value in (("max_background", "256"), ("congestion_threshold", "256")):
        try:
            with open(f"{control}/{name}", "w", encoding="ascii") as f:
                f.write(value)
        except OSError as e:
            say(f"{control}/{name}: {e.strerror}; the kernel's limit of 12 requests may show")


def parallelism(path, seconds=1.0):
    """How many times one thread's rate of 4k reads this many threads reach."""
    one = rate(path, 1, seconds)
    return rate(path, DEPTH, seconds) / one


def rate(path, threads, seconds):
    drop_caches()
    counts = [0] * threads
    size = os.stat(path).st_size
    limit = time.monotonic() + seconds

    def reader(index):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        mine = random.Random(index)
        while time.monotonic() < limit:
            os.pread(descriptor, 4096, mine.randrange(size // 4096) * 4096)
            counts[index] += 1
        os.close(descriptor)

    readers = [threading.Thread(target=reader, args=(i,)) for i in range(threads)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join(seconds * 10 + 10)
    if not all(counts):
        raise Failed("the slow file doesn't answer")
    return sum(counts) / seconds
