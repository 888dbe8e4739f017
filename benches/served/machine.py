"""What the machine has, what it is, and a workplace that leaves nothing behind."""

import contextlib
import datetime
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# A tool that is used, and its Debian package.
PACKAGES = {
    "cryptsetup": "cryptsetup-bin",
    "nbdkit": "nbdkit",
    "qemu-nbd": "qemu-utils",
    "nbdcopy": "libnbd-bin",
    "nbdfuse": "nbdfuse",
    "fio": "fio",
    "dd": "coreutils",
    "cc": "gcc and libc6-dev",
    "losetup": "mount",
    "blockdev": "util-linux",
    "fusermount3": "fuse3",
    "strace": "strace",
    "perf": "linux-perf",
}


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failed(Exception):
    """A thing that couldn't be run or measured, in words for the user."""


def find(tool):
    """The tool's path, or None."""
    return shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def need(*tools):
    """The paths of these tools; Failed names the packages of those that are missing."""
    absent = [tool for tool in tools if find(tool) is None]
    if absent:
        raise Failed(
            "missing: "
            + ", ".join(f"{tool} (Debian package {PACKAGES.get(tool, tool)})" for tool in absent)
        )
    return [find(tool) for tool in tools]


def describe():
    """The machine, as every raw row carries it."""
    model = "unknown"
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as facts:
        for line in facts:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }


def now():
    """Date and time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def say(text):
    """Progress and warnings; the tables alone go to standard output."""
    print(text, file=sys.stderr, flush=True)


def run(command, timeout_s, **more):
    """Runs a command to its end and returns what it printed.

    Failed where it can't be started, fails, or takes longer than `timeout_s`; it and its children
    are then killed, so that nothing here can hang.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            errors="replace",
            **more,
        )
    except OSError as e:
        raise Failed(f"{command[0]}: {e.strerror}") from None
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} took longer than {timeout_s:.0f} s") from None
    finally:
        if child.poll() is None:
            end(child, wait_s=0, group=True)
    if child.returncode:
        words = (err.strip() or out.strip()).splitlines()
        raise Failed(f"{command[0]} ended with {child.returncode}: {' / '.join(words[-3:])}")
    return out, err


def end(child, wait_s=6, group=False):
    """Ends a process that was started here: asked first if `wait_s` isn't 0, then killed."""
    if child.poll() is not None:
        return
    if wait_s:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
            return
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(5)


class Workplace(contextlib.ExitStack):
    """A folder, and whatever is to be undone before it goes: last made, first undone.

    Signals that end the program come as KeyboardInterrupt, so that leaving is one way only.
    """

    def __init__(self, folder):
        super().__init__()
        # SIGINT too: a shell that starts this in the background has it ignored.
        for number in ENDING:
            signal.signal(number, signal.default_int_handler)
        try:
            self.folder = tempfile.mkdtemp(prefix="luks-bench-", dir=folder)
        except OSError as e:
            raise Failed(f"{folder}: {e.strerror}; choose another place with --dir") from None
        self.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def __exit__(self, *why):
        # Impatience must not leave mounts behind.
        before = [(number, signal.signal(number, signal.SIG_IGN)) for number in ENDING]
        try:
            return super().__exit__(*why)
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def path(self, name):
        return os.path.join(self.folder, name)

    def undo(self, action, *arguments):
        """Runs the action on leaving; that it fails keeps none of the others from running."""

        def quietly():
            try:
                action(*arguments)
            except (Failed, OSError) as e:
                say(f"cleaning up: {e}")

        return self.callback(quietly)


def drop_caches():
    """Clean pages go, so that a read is a read. Needs root; tmpfs keeps its pages."""
    with contextlib.suppress(OSError), open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("1\n")


def wait_until(condition, timeout_s, what):
    """Waits for the condition; Failed with `what` when it takes longer."""
    limit = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > limit:
            raise Failed(what)
        time.sleep(0.01)
    return value
