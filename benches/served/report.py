"""Tables for people, made of nothing but raw rows."""

import math

from .stats import Table
from .targets import all_targets


def amount(f):
    """A figure with its interval."""
    if math.isinf(f.high):
        return f"{f.value:.3g} (one round)"
    return f"{f.value:.3g} [{f.low:.3g}, {f.high:.3g}]"


def print_targets(rows):
    print("\nTargets: the worst figure of each line, its 95 % interval, the verdict\n")
    for heading, lines in all_targets(Table(rows)):
        lines = [line for line in lines if line.figures]
        if not lines:
            continue
        print(heading)
        for line in lines:
            label, worst = line.worst()
            sign = "≤" if line.at_most else "≥"
            where = f"  {label}" if label else ""
            counts = line.counts()
            if len(line.figures) > 1:
                where += f"  ({', '.join(f'{n} {v}' for v, n in counts.items())})"
            name = line.what + (f", against {line.against}" if line.against else "")
            middle = f"{sign} {line.limit:<5g} {amount(worst):<24} {line.verdict():<10}"
            print(f"  {name:<56} {middle}{where}".rstrip())
            if line.verdict() != "met" and len(line.figures) > 1:
                print_misses(line)
        print()


def print_misses(line):
    """Every cell that isn't met, the worst first."""
    misses = [(l, f) for l, f in line.figures if f.verdict(line.limit, line.at_most) != "met"]
    misses.sort(key=lambda miss: miss[1].value, reverse=line.at_most)
    for label, f in misses:
        print(f"      {label:<40} {amount(f):<24} {f.verdict(line.limit, line.at_most)}")


# Field, heading, and how a median of it is written.
FIELDS = [
    ("bytes_per_s", "MiB/s", lambda v: f"{v / (1 << 20):.0f}"),
    ("iops", "requests/s, where the client counts them", lambda v: f"{v:.0f}"),
    ("p50_us", "p50 latency, µs", lambda v: f"{v:.1f}"),
    ("p99_us", "p99 latency, µs", lambda v: f"{v:.0f}"),
    ("cpu_s_per_gib", "server CPU seconds per GiB", lambda v: f"{v:.3f}"),
    ("peak_kib", "server's peak memory, MiB", lambda v: f"{v / 1024:.0f}"),
    ("calls_per_request", "system calls per request", lambda v: f"{v:.2f}"),
    ("added_kib", "memory that idle connections add, KiB", lambda v: f"{v:.0f}"),
]


def print_medians(rows):
    table = Table(rows)
    for field, heading, written in FIELDS:
        cells = [c for c in table.cells if any(table.values(s, c, field) for s in table.servers)]
        servers = [s for s in table.servers if any(table.values(s, c, field) for c in cells)]
        if not cells:
            continue
        width = max(11, *(len(s) + 1 for s in servers))
        print(f"\n{heading} (medians)")
        print(" " * 36 + "".join(f"{s:>{width}}" for s in servers))
        for cell in cells:
            medians = [table.median(s, cell, field) for s in servers]
            words = ["-" if m is None else written(m) for m in medians]
            print(f"{cell:<36}" + "".join(f"{word:>{width}}" for word in words))


def print_ratios(rows, pairs, field="bytes_per_s"):
    """One server beside another, cell by cell, and the geometric mean."""
    table = Table(rows)
    for server, other in pairs:
        cells = [c for c in table.cells if table.ratios(server, other, c, field)]
        if not cells:
            continue
        print(f"\n{server} over {other}, {field}: median of ratios within rounds [95 % interval]")
        for cell in cells:
            print(f"  {cell:<36}{amount(table.ratio(server, other, cell, field))}")
        mean = table.mean_ratio(server, other, cells, field)
        if mean:
            print(f"  {'geometric mean':<36}{amount(mean)}")


def print_failures(rows):
    failed = [row for row in rows if "error" in row]
    for row in failed:
        print(f"failed: {row['server']}, {row['cell']}, round {row['round']}: {row['error']}")
