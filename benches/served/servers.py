"""The contenders, each at its own unix socket, and what one of them uses of the machine."""

import ctypes
import os
import re
import subprocess
import time

from .machine import Failed, end, find, need, run, wait_until
from .nbd import Client

START_S = 20
PR_SET_PDEATHSIG = 1
SIGKILL = 9


class Server:
    """A running server."""

    def __init__(self, place, name, command, socket_path):
        self.name = name
        self.command = command
        self.socket = socket_path
        self.uri = f"nbd+unix:///?socket={socket_path}"
        self.log = f"{socket_path}.log"
        libc = ctypes.CDLL(None)

        def before():
            # Should this program be killed, its servers go as well.
            libc.prctl(PR_SET_PDEATHSIG, SIGKILL)

        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=before,
                start_new_session=True,
            )
        self.pid = self.child.pid
        place.undo(end, self.child)
        try:
            wait_until(self.answers, START_S, "it doesn't answer")
        except Failed as e:
            self.stop()
            raise Failed(f"{name}: {e}: {self.last_words()}") from None

    def answers(self):
        if self.child.poll() is not None:
            raise Failed(f"ended with {self.child.returncode}")
        try:
            client = Client(self.socket, timeout_s=2)
        except Failed:
            return False
        client.close()
        return True

    def last_words(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return " / ".join(f.read().strip().splitlines()[-3:]) or "it said nothing"

    def stop(self):
        end(self.child)

    def cpu_s(self):
        """CPU time of all its threads so far, the kernel's on its behalf included, from the
        process's CPU clock: exact to nanoseconds where /proc counts ticks. A thread that polls an
        io_uring for it (SQPOLL) is a thread of the process."""
        return time.clock_gettime_ns(((~self.pid) << 3) | 2) / 1e9

    def forget_peak(self):
        try:
            with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as f:
                f.write("5\n")
        except OSError:
            pass

    def memory_kib(self, field):
        """VmHWM, VmRSS, RssAnon … in KiB."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as f:
            found = re.search(rf"^{field}:\s*(\d+) kB", f.read(), re.M)
        return int(found[1]) if found else None

    def pss_kib(self):
        with open(f"/proc/{self.pid}/smaps_rollup", encoding="ascii", errors="replace") as f:
            found = re.search(r"^Pss:\s*(\d+) kB", f.read(), re.M)
        return int(found[1]) if found else None

    def set_cpus(self, cpus):
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            os.sched_setaffinity(int(thread), cpus)


# Name: the volume it serves. Ours first; the others in the order of the targets.
OURS = {
    "luks2-512": "luks2-512",
    "luks2-4096": "luks2-4096",
    "luks1": "luks1",
    "cbc": "cbc",
    "null": "raw",
}
PEERS = {
    "nbdkit": "raw",
    "qemu-nbd": "raw",
    "nbdkit-luks": "luks1",
    "qemu-luks": "luks1",
}


class Fleet:
    """Starts contenders by name: one of OURS or PEERS, or one of OURS with a suffix.

    `luks2-512@before` runs the other binary, `luks2-512@uring` adds `--io uring`.
    """

    def __init__(self, place, volumes, luks, luks_before=None):
        self.place = place
        self.volumes = volumes
        self.luks = {"": luks, "before": luks_before}
        self.sockets = 0
        self.full = set()

    def volume(self, name):
        base = name.split("@")[0]
        if base not in OURS and base not in PEERS:
            raise Failed(f"no server is called {base}; there are {', '.join([*OURS, *PEERS])}")
        return OURS.get(base) or PEERS[base]

    def start(self, name, volume_path=None, more=()):
        """A server that answers. `volume_path` instead of the volume it has by its name."""
        if volume_path is None:
            self.fill(self.volume(name))
            volume_path = self.volumes.path(self.volume(name))
        return self.start_over(name, volume_path, more)

    def start_over(self, name, path, more=()):
        self.sockets += 1
        socket_path = self.place.path(f"s{self.sockets}")
        command = self.command(name, path, socket_path) + list(more)
        return Server(self.place, name, command, socket_path)

    def command(self, name, path, socket_path):
        base, _, suffix = name.partition("@")
        key = self.volumes.key_file
        if base in OURS:
            binary = self.luks.get(suffix) or self.luks[""]
            command = [binary, "serve", path, "--socket", socket_path]
            if base == "null":
                command += ["--type", "plain", "--cipher", "cipher_null-ecb", "--key-size", "256"]
                command += ["--allow-null-cipher"]
            command += ["--key-file", key]
            return command + (["--io", suffix] if suffix not in ("", "before") else [])
        if base.startswith("nbdkit"):
            need("nbdkit")
            command = [find("nbdkit"), "-f", "-U", socket_path, "file", path]
            if base == "nbdkit-luks":
                command += ["--filter=luks", f"passphrase=+{key}"]
            return command
        need("qemu-nbd")
        command = [find("qemu-nbd"), "-t", "-e", "16", "-k", socket_path]
        command += ["--cache=writeback", "--aio=threads"]
        if base == "qemu-luks":
            image = f"driver=luks,key-secret=k,file.driver=file,file.filename={path}"
            return command + ["--object", f"secret,id=k,file={key}", "--image-opts", image]
        return command + ["-f", "raw", path]

    def fill(self, volume):
        """Writes a volume full of random bytes through a server of ours, once."""
        if volume in self.full:
            return
        need("nbdcopy")
        name = "null" if volume == "raw" else volume
        server = self.start_over(name, self.volumes.path(volume))
        try:
            run([find("nbdcopy"), "--flush", self.volumes.random_file, server.uri], timeout_s=300)
        finally:
            server.stop()
        self.full.add(volume)

    def check(self, server):
        """Failed unless the server gives the bytes that its volume was filled with."""
        client = Client(server.socket)
        try:
            size = self.volumes.payload_bytes
            if client.size_bytes != size:
                raise Failed(f"{server.name}: serves {client.size_bytes} bytes instead of {size}")
            with open(self.volumes.random_file, "rb") as f:
                for offset in (0, size // 3 & ~4095, size - 65536):
                    f.seek(offset)
                    if client.read(offset, 65536) != f.read(65536):
                        raise Failed(f"{server.name}: serves other bytes than were written")
        finally:
            client.close()

    def has_io_flag(self):
        """Whether our server lets its I/O back end be chosen."""
        out, err = run([self.luks[""], "serve", "--help"], timeout_s=20)
        return "--io " in out + err
