"""The command line of tools/bench."""

import argparse
import os
import re
import shlex
import sys

from . import cells, passes, report
from .fuse import fuse
from .machine import Failed, Workplace, find, need, say
from .runner import Contest, Rows, read_rows
from .servers import OURS, PEERS, Fleet
from .slow_disk import slow_disk
from .volumes import MIB, Volumes

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

VERBS = {
    "all": "everything below but scale, and the table of targets (also without a verb)",
    "cells": "servers beside each other, cell by cell",
    "compare": "two binaries (--luks, --luks-before), or two files of rows",
    "syscalls": "system calls per 4k request at QD32",
    "slow-disk": "a disk of 1 ms a request: depth from one connection and from many",
    "memory": "peak memory, and what idle connections cost",
    "fuse": "dd on FUSE with a loop device, beside nbdfuse",
    "io": "--io plain and auto beside --io uring",
    "scale": "1 to 8 connections against cores",
    "report": "the tables again, from files of rows",
    "list": "the cells and servers, by name",
}


def parse(argv):
    verbs = "\n".join(f"  {verb:<12}{what}" for verb, what in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="tools/bench",
        description="Our server beside nbdkit's and qemu's. benches/served/README.md explains.",
        epilog=f"verbs:\n{verbs}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", nargs="?", choices=VERBS, default="all", metavar="VERB")
    parser.add_argument("files", nargs="*", metavar="FILE.jsonl", help="rows to compare or report")
    parser.add_argument("--luks", help="our command (default: target/release/luks)")
    parser.add_argument("--luks-before", help="another binary of it, to compare with")
    parser.add_argument("--rounds", type=positive_int, default=5)
    parser.add_argument("--seconds", type=positive, default=0.7, help="of each fio cell")
    parser.add_argument("--only", metavar="REGEX", help="cells whose names it finds")
    parser.add_argument("--servers", metavar="LIST", help="comma-separated names")
    parser.add_argument("--out", metavar="FILE.jsonl", help="raw rows are added to this file")
    parser.add_argument("--dir", default="/dev/shm", help="where the volumes lie (/dev/shm)")
    parser.add_argument("--payload-mib", type=positive_int, default=1024, help="of each volume")
    parser.add_argument("--quick", action="store_true", help="see that it works; says little")
    options = parser.parse_intermixed_args(argv)
    if options.quick:
        options.rounds, options.seconds, options.payload_mib = min(options.rounds, 2), 0.2, 128
    if options.files and options.verb not in ("compare", "report"):
        parser.error(f"{options.verb} takes no files")
    if options.verb == "report" and not options.files:
        parser.error("report: which files of rows?")
    if options.verb == "compare" and len(options.files) not in (0, 2):
        parser.error("compare: two files of rows, or none")
    try:
        re.compile(options.only or "")
    except re.error as e:
        parser.error(f"--only: {e}")
    return options


def positive(text):
    value = float(text)
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text}: above 0, below 3600")
    return value


def positive_int(text):
    value = int(text)
    if not 0 < value <= 1 << 20:
        raise argparse.ArgumentTypeError(f"{text}: from 1 to 1048576")
    return value


def main(argv):
    options = parse(argv)
    try:
        return {"list": show_names, "report": report_files}.get(options.verb, measure)(options)
    except Failed as e:
        say(f"tools/bench: {e}")
        return 1
    except KeyboardInterrupt:
        say("tools/bench: interrupted; everything is cleaned up")
        return 130


def show_names(_options):
    print("cells:", *(cell.name for cell in cells.all_cells()), sep="\n  ")
    print("servers:", *OURS, *PEERS, sep="\n  ")
    return 0


def report_files(options):
    rows = []
    for number, path in enumerate(options.files):
        # Rounds of several runs are rounds of one: those of each run stay together.
        rows += [{**row, "round": row["round"] + 1000 * number} for row in read_rows(path)]
    conclude(rows)
    return 0


def conclude(rows):
    report.print_medians(rows)
    report.print_targets(rows)
    report.print_failures(rows)


def compare_files(options):
    before, after = (read_rows(path) for path in options.files)
    names = {row["server"] for row in after}
    rows = [{**row, "server": row["server"] + "@before"} for row in before] + after
    show_pairs(rows, sorted(names))
    print("\nThe two were not run in turns: what the machine did in between is in these ratios.")
    return 0


def show_pairs(rows, names):
    for field in ("bytes_per_s", "cpu_s_per_gib", "p50_us"):
        report.print_ratios(rows, [(name, f"{name}@before") for name in names], field)


def luks_binary(options):
    path = options.luks or os.path.join(ROOT, "target", "release", "luks")
    if not os.access(path, os.X_OK):
        raise Failed(f"{path}: no such command; `cargo build --release`, or --luks PATH")
    return os.path.abspath(path)


def measure(options):
    if options.verb == "compare" and options.files:
        return compare_files(options)
    luks = luks_binary(options)
    before = options.luks_before
    if before and not os.access(before, os.X_OK):
        raise Failed(f"{before}: no such command")
    if options.verb == "compare" and not before:
        raise Failed("compare: two files of rows, or --luks-before BINARY")
    need("cryptsetup", "nbdcopy", "fio")
    load = os.getloadavg()[0]
    if load > 0.5 and not options.quick:
        say(f"the machine is busy (load {load:.1f}): figures worth keeping need a quiet one")
    rows = Rows(options.out, shlex.join(["tools/bench", *sys.argv[1:]]))
    with Workplace(options.dir) as place:
        volumes = Volumes(place, options.payload_mib * MIB)
        fleet = Fleet(place, volumes, luks, os.path.abspath(before) if before else None)
        RUNS[options.verb](fleet, rows, options)
    if options.out:
        say(f"raw rows: {options.out}")
    return 1 if any("error" in row for row in rows.kept) else 0


def names_of(options, default):
    return options.servers.split(",") if options.servers else default


def run_contest(fleet, rows, options, names):
    chosen = cells.chosen(options.only)
    if not chosen:
        raise Failed(f"--only {options.only}: no such cell; `tools/bench list` names them")
    contest = Contest(fleet, names, rows)
    contest.run(chosen, options.rounds, options.seconds)
    contest.stop()


def peers_here():
    """The contenders that can be run here; the packages of the others are named."""
    names = list(OURS)
    for name in PEERS:
        try:
            need("qemu-nbd" if name.startswith("qemu") else "nbdkit")
            names.append(name)
        except Failed as e:
            say(f"{name} is left out: {e}")
    return names


def run_cells(fleet, rows, options):
    run_contest(fleet, rows, options, names_of(options, peers_here()))
    conclude(rows.kept)


def run_compare(fleet, rows, options):
    names = names_of(options, ["luks2-512"])
    run_contest(fleet, rows, options, [n for name in names for n in (name, f"{name}@before")])
    report.print_medians(rows.kept)
    show_pairs(rows.kept, names)
    report.print_failures(rows.kept)


def each_pass(options):
    rounds, seconds = options.rounds, options.seconds
    return {
        "syscalls": lambda f, r: passes.syscalls(f, r, min(rounds, 3), seconds),
        "slow-disk": lambda f, r: slow_disk(f, r, rounds, max(seconds, 1.0)),
        "memory": lambda f, r: passes.memory(f, r, min(rounds, 3)),
        "fuse": lambda f, r: fuse(f, r, rounds),
        "io": lambda f, r: passes.back_ends_beside(f, r, rounds, seconds),
    }


def run_pass(fleet, rows, options):
    if options.verb == "scale":
        names = names_of(options, ["luks2-512", "nbdkit"])
        passes.scale(fleet, rows, min(options.rounds, 3), options.seconds, names)
    else:
        each_pass(options)[options.verb](fleet, rows)
    conclude(rows.kept)


def run_all(fleet, rows, options):
    run_contest(fleet, rows, options, names_of(options, peers_here()))
    if not options.only and not options.servers:
        for name, work in each_pass(options).items():
            say(f"== {name}")
            try:
                work(fleet, rows)
            except Failed as e:
                # What can't be measured here keeps none of the rest from being printed.
                rows.add(name, name, 0, error=str(e))
    conclude(rows.kept)


RUNS = {"all": run_all, "cells": run_cells, "compare": run_compare}
RUNS |= {verb: run_pass for verb in ("syscalls", "slow-disk", "memory", "fuse", "io", "scale")}
