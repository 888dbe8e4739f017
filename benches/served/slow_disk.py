"""A slow disk: 1 ms a storage request, and as many at a time as are asked for.

No kernel module is needed: the volume's file is seen through FUSE by `slow_file.c`, which sleeps
before each request and works on many at once. (nbdkit's delay filter under nbdfuse would do the
same, but nbdfuse works on ten at most.) That the file is parallel is measured first, by threads
that read it plainly, since one that is slow *and* serial would show nothing.
"""

import contextlib
import os
import random
import subprocess
import threading
import time

from . import clients
from .machine import Failed, end, find, need, run, say, wait_until
from .passes import SUBJECT, back_ends
from .runner import measured
DEPTH = 32
DELAY_US = 1000
# Below this much parallelism the file is the bottleneck and nothing is learnt.
PARALLEL_MIN = 20


def slow_disk(fleet, rows, rounds, seconds):
    place = fleet.place
    need("cc", "fio")
    if os.geteuid() != 0:
        raise Failed("the slow file needs root, to be mounted")
    fleet.fill(fleet.volume(SUBJECT))
    path = slow_file(place, fleet.volumes.path(fleet.volume(SUBJECT)))
    # The best of three: what other processes take away is not the file's.
    parallel = max(parallelism(path) for _ in range(3))
    rows.add("slow-file", "slow-parallelism", 1, parallel=parallel)
    say(f"the slow file: {parallel:.1f} reads at a time when {DEPTH} are asked for")
    if parallel < PARALLEL_MIN:
        raise Failed(f"the slow file answers only {parallel:.1f} reads at a time; nothing measured")
    names = back_ends(fleet)
    servers = {name: fleet.start(name, volume_path=path) for name in names}
    size = [f"--size={fleet.volumes.payload_bytes}"]
    for number in range(1, rounds + 1):
        for connections, depth in ((1, DEPTH), (DEPTH, 1)):
            for name, server in servers.items():

                def work():
                    return clients.fio(
                        server.uri, "randread", 4096, depth, seconds, jobs=connections, extra=size
                    )

                try:
                    result = measured(server, work)
                    rows.add(name, f"slow-{connections}xqd{depth}", number, **result)
                except Failed as e:
                    rows.add(name, f"slow-{connections}xqd{depth}", number, error=str(e))
    for server in servers.values():
        server.stop()


def slow_file(place, path):
    """A file that is `path`, a millisecond a request later."""
    program, file = place.path("slow_file"), place.path("slow.img")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_file.c")
    run([find("cc"), "-O2", "-pthread", "-o", program, source], 60)
    with open(file, "wb"):
        pass
    child = subprocess.Popen(
        [program, path, file, str(DELAY_US), str(4 * DEPTH)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    place.undo(end, child)

    def appears():
        if child.poll() is not None:
            raise Failed(f"the slow file: {child.stderr.read().strip()}")
        return os.stat(file).st_size > 0

    wait_until(appears, 10, "the slow file doesn't appear")
    return file


def parallelism(path, seconds=0.5):
    """How many reads are under way at a time when `DEPTH` threads read: their rate times the time
    that each takes at least (Little's law)."""
    return rate(path, DEPTH, seconds) * DELAY_US / 1e6


def rate(path, threads, seconds):
    counts = [0] * threads
    size = os.stat(path).st_size
    limit = time.monotonic() + seconds

    def reader(index):
        mine = random.Random(index)
        # The file may go while this reads, when the program is told to end.
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            while time.monotonic() < limit:
                os.pread(file.fileno(), 4096, mine.randrange(size // 4096) * 4096)
                counts[index] += 1

    readers = [threading.Thread(target=reader, args=(i,)) for i in range(threads)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join(seconds * 10 + 10)
    if not all(counts):
        raise Failed("the slow file doesn't answer")
    return sum(counts) / seconds
