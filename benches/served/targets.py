"""The targets, each a figure of the rows: what it compares, what it must reach, whether it does."""

from .stats import figure


class Target:
    """A line of the table: labelled figures that all have to be on the right side of `limit`."""

    def __init__(self, against, what, limit, figures, at_most=False):
        self.against, self.what, self.limit, self.at_most = against, what, limit, at_most
        self.figures = [(label, f) for label, f in figures if f is not None]

    def verdict(self):
        """`short` if any figure is; `met` if all are; none without figures."""
        verdicts = [f.verdict(self.limit, self.at_most) for _, f in self.figures]
        for answer in ("short", "undecided", "met"):
            if answer in verdicts:
                return answer
        return "not measured"

    def worst(self):
        """The figure that is farthest to the wrong side, with its label."""
        pick = max if self.at_most else min
        return pick(self.figures, key=lambda labelled: labelled[1].value, default=None)

    def counts(self):
        """How many figures are short, undecided, met."""
        verdicts = [f.verdict(self.limit, self.at_most) for _, f in self.figures]
        return {v: verdicts.count(v) for v in ("short", "undecided", "met") if v in verdicts}


class Sheet:
    """The rows of a run as the targets ask for them."""

    def __init__(self, table):
        self.table = table
        self.cells = [c for c in table.cells if c.startswith(("nbdcopy-", "fio-"))]

    def each(self, server, other, chosen=lambda cell: True, field="bytes_per_s"):
        cells = [cell for cell in self.cells if chosen(cell)]
        return [(cell, self.table.ratio(server, other, cell, field)) for cell in cells]

    def mean(self, server, other):
        ratios = self.table.ratios
        cells = [cell for cell in self.cells if ratios(server, other, cell, "bytes_per_s")]
        return [(f"over {len(cells)} cells", self.table.mean_ratio(server, other, cells))]

    def best_of(self, server, others, cells):
        """Against the fastest of several in the cell, by medians."""
        found = []
        for cell in cells:
            rated = [(self.table.median(o, cell, "bytes_per_s"), o) for o in others]
            rated = [pair for pair in rated if pair[0]]
            if rated:
                best = max(rated)[1]
                found.append((f"{cell} ({best})", self.table.ratio(server, best, cell)))
        return found

    def within(self, server, cell, other_cell, field):
        """Ratio of two cells of one server, round by round."""
        top = self.table.values(server, cell, field)
        bottom = self.table.values(server, other_cell, field)
        return figure(top[r] / bottom[r] for r in top if bottom.get(r))

    def plain(self, server, cell, field, scale=1.0):
        return figure(v * scale for v in self.table.values(server, cell, field).values())


def nbdcopy_read(cell):
    return cell.startswith("nbdcopy-read-")


def qd1(cell):
    return cell.endswith("-qd1")


def reads_at_32(cell):
    return cell in ("fio-read-4k-qd32", "fio-randread-4k-qd32")


def beside_peers(sheet, subject):
    """What a server has to reach beside the plaintext ones."""
    each, mean = sheet.each, sheet.mean
    return [
        Target("nbdkit", "geometric mean", 1.5, mean(subject, "nbdkit")),
        Target("nbdkit", "every cell", 1.0, each(subject, "nbdkit")),
        Target("nbdkit", "QD1 cells", 1.4, each(subject, "nbdkit", qd1)),
        Target("nbdkit", "nbdcopy read", 1.5, each(subject, "nbdkit", nbdcopy_read)),
        Target("nbdkit", "4k QD32 reads", 1.6, each(subject, "nbdkit", reads_at_32)),
        Target("qemu-nbd", "nbdcopy read", 1.25, each(subject, "qemu-nbd", nbdcopy_read)),
        Target("qemu-nbd", "geometric mean", 2.1, mean(subject, "qemu-nbd")),
    ]


def costs(sheet, subject):
    """Latency and CPU beside nbdkit's plaintext."""
    latency = sheet.each(subject, "nbdkit", lambda c: c == "fio-randread-4k-qd1", "p50_us")
    cpu = sheet.each(subject, "nbdkit", nbdcopy_read, "cpu_s_per_gib")
    return [
        Target("nbdkit", "p50 latency, 4k randread QD1", 0.55, latency, at_most=True),
        Target("nbdkit", "server CPU/GiB, nbdcopy read", 0.75, cpu, at_most=True),
    ]


def apart(sheet, subject):
    """What the separate passes measure."""
    rows = sheet.table.rows
    uring, plain = f"{subject}@uring", f"{subject}@plain"
    slow = [s for s in (uring, plain, subject) if (s, "slow-1xqd32") in rows]
    both = [c for c in sheet.cells if (uring, c) in rows and (plain, c) in rows]
    dd = [f"dd-{kind}-1m{direct}" for kind in ("read", "write") for direct in ("", "-direct")]
    busy = [f"memory-4xqd64-256k-{kind}" for kind in ("read", "write")]
    return [
        *calls(sheet, uring if uring in sheet.table.servers else subject),
        *(
            Target("", f"slow disk, QD32 over 32 × QD1 ({name})", 0.8,
                   [("", sheet.within(name, "slow-1xqd32", "slow-32xqd1", "iops"))])
            for name in slow
        ),
        Target("nbdfuse", "FUSE + loop, dd bs=1M", 1.3,
               sheet.best_of("fuse", ["nbdfuse", "nbdfuse-dio"], dd)),
        Target("--io uring", "--io plain", 0.85,
               [(cell, sheet.table.ratio(plain, uring, cell)) for cell in both]),
        Target("the better --io", "--io auto, geometric mean", 0.95, auto(sheet, subject, both)),
        Target("", "peak memory, 4 × QD64 × 256 KiB, MiB", 160,
               [(cell, sheet.plain(subject, cell, "peak_kib", 1 / 1024)) for cell in busy],
               at_most=True),
        Target("", "200 idle connections add, MiB", 8,
               [("", sheet.plain(subject, "memory-200-idle", "added_kib", 1 / 1024))],
               at_most=True),
    ]


def calls(sheet, server):
    """System calls, by perf where it could count, else by strace."""
    figures = []
    for kind in ("randread", "randwrite"):
        names = [f"{prefix}-{kind}-4k-qd32" for prefix in ("syscalls", "strace")]
        cell = next((name for name in names if (server, name) in sheet.table.rows), names[0])
        figures.append((cell, sheet.plain(server, cell, "calls_per_request")))
    yield Target("", f"system calls a 4k request, QD32 ({server})", 0.25, figures, at_most=True)


def auto(sheet, subject, cells):
    """`auto` beside whichever back end is the better one over these cells."""
    uring, plain = f"{subject}@uring", f"{subject}@plain"
    better = sheet.table.mean_ratio(plain, uring, cells)
    other = plain if better and better.value > 1 else uring
    return [(f"against {other}", sheet.table.mean_ratio(f"{subject}@auto", other, cells))]


def all_targets(table):
    """Sections of the table of targets: a heading, and its lines."""
    sheet = Sheet(table)
    each, mean = sheet.each, sheet.mean
    for subject in ("luks2-512", "luks2-4096"):
        yield f"{subject} beside plaintext", beside_peers(sheet, subject) + costs(sheet, subject)
    yield "null cipher beside plaintext", beside_peers(sheet, "null")
    yield "luks1 beside other LUKS servers", [
        Target("nbdkit-luks", "every cell", 1.15, each("luks1", "nbdkit-luks")),
        Target("nbdkit-luks", "geometric mean", 3.8, mean("luks1", "nbdkit-luks")),
        Target("qemu-luks", "every cell", 1.5, each("luks1", "qemu-luks")),
        Target("qemu-luks", "geometric mean", 6.5, mean("luks1", "qemu-luks")),
    ]
    yield "the price of encryption, and of small sectors", [
        Target("null", "luks2-512, every cell", 0.9, each("luks2-512", "null")),
        Target("null", "luks2-4096, every cell", 0.9, each("luks2-4096", "null")),
        Target("luks2-4096", "luks2-512, geometric mean", 0.95, mean("luks2-512", "luks2-4096")),
        Target("luks2-4096", "luks2-512, every cell", 0.95, each("luks2-512", "luks2-4096")),
    ]
    yield "measured apart", apart(sheet, "luks2-512")
