"""What is measured apart from the cells: system calls, memory, scaling, the I/O back ends."""

import itertools
import os
import re
import subprocess
import tempfile
import time

from . import cells, clients
from .machine import Failed, end, find, say
from .nbd import Client
from .runner import Contest, measured

SUBJECT = "luks2-512"
QUIET = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}


def back_ends(fleet):
    """The subject with each I/O back end that can be chosen; as it is where none can be."""
    if fleet.has_io_flag():
        return [f"{SUBJECT}@uring", f"{SUBJECT}@plain"]
    say("luks serve has no --io yet: its only back end is measured")
    return [SUBJECT]


def syscalls(fleet, rows, rounds, seconds):
    """System calls per 4k request at QD32, counted by strace and, where the kernel lets it, perf.

    strace stops the server at each call, which makes batches longer than they are; perf counts
    without stopping it. perf's figure is the one that is judged where there is one.
    """
    size = [f"--size={fleet.volumes.payload_bytes}"]
    for name in [*back_ends(fleet), "nbdkit", "qemu-nbd"]:
        server = fleet.start(name)
        try:
            for kind in ("randread", "randwrite"):
                counted = 0
                for counter, prefix in ((perf_calls, "syscalls"), (strace_calls, "strace")):

                    def work():
                        return clients.fio(server.uri, kind, 4096, 32, seconds, extra=size)

                    cell = f"{prefix}-{kind}-4k-qd32"
                    # What perf has judged, strace need only tell apart.
                    often = 1 if counted else rounds
                    counted += count_rounds(server, rows, often, cell, counter, work)
        finally:
            server.stop()


def count_rounds(server, rows, rounds, cell, counter, work):
    """Returns how many rounds could be counted."""
    for number in range(1, rounds + 1):
        try:
            by_call, result = counter(server.pid, work)
        except Failed as e:
            say(f"{cell}, {server.name}: {e}")
            return number - 1
        calls = sum(by_call.values())
        per_request = calls / result["requests"]
        counted = {"requests": result["requests"], "calls": calls, "calls_per_request": per_request}
        rows.add(server.name, cell, number, **counted, by_call=by_call)
    return rounds


def strace_calls(pid, work):
    if not find("strace"):
        raise Failed("missing: strace (Debian package strace)")
    with tempfile.NamedTemporaryFile("r") as out:
        command = [find("strace"), "-c", "-f", "-qq", "-o", out.name, "-p", str(pid)]
        tracer = subprocess.Popen(command, **QUIET)
        try:
            time.sleep(0.5)  # It attaches to each thread.
            if tracer.poll() is not None:
                raise Failed(f"strace: {tracer.stderr.read().strip()}")
            result = work()
        finally:
            if tracer.poll() is None:
                tracer.send_signal(2)
                try:
                    tracer.wait(10)
                except subprocess.TimeoutExpired:
                    end(tracer, wait_s=0)
        detail = {}
        for line in out.read().splitlines():
            found = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?([a-z_0-9]+)$", line)
            if found and found[2] != "total":
                detail[found[2]] = int(found[1])
    if not detail:
        raise Failed("strace counted nothing")
    return detail, result


def perf_calls(pid, work):
    if not find("perf"):
        raise Failed("missing: perf (Debian package linux-perf)")
    command = [find("perf"), "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", str(pid)]
    counter = subprocess.Popen(command, **QUIET)
    try:
        time.sleep(0.5)
        if counter.poll() is not None:
            raise Failed(f"can't count here: {counter.stderr.read().strip().splitlines()[:1]}")
        result = work()
        counter.send_signal(2)
        _, err = counter.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        raise Failed("perf doesn't end") from None
    finally:
        end(counter, wait_s=0)
    found = re.search(r"^(\d+),.*raw_syscalls:sys_enter", err, re.M)
    if not found:
        raise Failed(f"perf counted nothing: {err.strip()[:100]}")
    return {"all": int(found[1])}, result


def memory(fleet, rows, rounds):
    """Peak memory with much in flight, and what idle connections cost."""
    size = [f"--size={fleet.volumes.payload_bytes}"]
    for number in range(1, rounds + 1):
        for name in (SUBJECT, "nbdkit", "qemu-nbd"):
            server = fleet.start(name, more=["-e", "0"] if name == "qemu-nbd" else ())
            try:
                idle = added_by_idle(server, 200)
                rows.add(name, "memory-200-idle", number, **idle)
                for kind in ("read", "write"):

                    def work():
                        return clients.fio(server.uri, kind, 262144, 64, 1.0, jobs=4, extra=size)

                    result = measured(server, work)
                    result["anonymous_kib"] = server.memory_kib("RssAnon")
                    rows.add(name, f"memory-4xqd64-256k-{kind}", number, **result)
            except Failed as e:
                rows.add(name, "memory", number, error=str(e))
            finally:
                server.stop()


def added_by_idle(server, connections):
    """Connections that did one read each and then nothing. Resident memory is counted, and the
    proportional set, of which the larger is judged."""
    rss, pss = server.memory_kib("VmRSS"), server.pss_kib()
    held = []
    try:
        for _ in range(connections):
            held.append(Client(server.socket))
            held[-1].read(0, 4096)
        time.sleep(1)
        rss, pss = server.memory_kib("VmRSS") - rss, server.pss_kib() - pss
        return {"added_rss_kib": rss, "added_pss_kib": pss, "added_kib": max(rss, pss, 1)}
    finally:
        for client in held:
            client.close()


def back_ends_beside(fleet, rows, rounds, seconds):
    """Plain reads against the ring, and what `auto` is near to, on what the volumes lie on."""
    if not fleet.has_io_flag():
        say("luks serve has no --io yet: nothing to compare")
        return
    names = [f"{SUBJECT}@{io}" for io in ("uring", "plain", "auto")]
    contest = Contest(fleet, names, rows)
    contest.run(cells.chosen(r"nbdcopy-.*-c[14]|fio-rand.*-(4k|64k)"), rounds, seconds)
    contest.stop()


def scale(fleet, rows, rounds, seconds, names):
    """Throughput over connections and cores. Clients may use all cores, servers only some."""
    cores = sorted(os.sched_getaffinity(0))
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < len(cores)] + [len(cores)]
    size = [f"--size={fleet.volumes.payload_bytes}"]
    loads = [("randread", 4096, 32), ("randwrite", 4096, 32)]
    loads += [("read", 262144, 16), ("write", 262144, 16)]
    servers = [fleet.start(name) for name in names]
    for number in range(1, rounds + 1):
        for load, count, connections in itertools.product(loads, counts, (1, 2, 4, 8)):
            kind, block_bytes, depth = load
            cell = f"scale-{kind}-{block_bytes // 1024}k-qd{depth}-{connections}c-{count}cores"
            for server in servers:
                server.set_cpus(set(cores[:count]))

                def work():
                    return clients.fio(server.uri, *load, seconds, jobs=connections, extra=size)

                try:
                    rows.add(server.name, cell, number, **measured(server, work))
                except Failed as e:
                    rows.add(server.name, cell, number, error=str(e))
        say(f"round {number} of {rounds}")
    for server in servers:
        server.stop()
