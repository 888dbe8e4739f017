"""The cells: one client at one load. Every server runs every cell."""

import re

from . import clients

# Bytes a request, requests in flight.
SHAPES = {
    "4k-qd1": (4096, 1),
    "4k-qd32": (4096, 32),
    "64k-qd16": (65536, 16),
    "1m-qd8": (1 << 20, 8),
}
KINDS = ("read", "write", "randread", "randwrite")
COPIES = {
    "c1": ["--connections=1", "--requests=64", "--request-size=262144"],
    "c4": ["--connections=4", "--requests=64", "--request-size=262144"],
    "defaults": [],
}


class Cell:
    """A named load; `run(server, volumes, seconds)` gives what the client said."""

    def __init__(self, name, run):
        self.name = name
        self.run = run


def copy_cell(direction, label, options):
    def run(server, volumes, _seconds):
        ends = (server.uri, "null:") if direction == "read" else (volumes.random_file, server.uri)
        return clients.nbdcopy(*ends, options, volumes.payload_bytes, timeout_s=120)

    return Cell(f"nbdcopy-{direction}-{label}", run)


def fio_cell(kind, shape):
    block_bytes, depth = SHAPES[shape]

    def run(server, volumes, seconds):
        size = [f"--size={volumes.payload_bytes}"]
        return clients.fio(server.uri, kind, block_bytes, depth, seconds, extra=size)

    return Cell(f"fio-{kind}-{shape}", run)


# No target is about it: enough cells to see what its cipher costs.
SOME = {"cbc": r"-c1$|-4k-qd32$|-1m-qd8$"}


def runs(server_name, cell):
    """Whether a server takes part in a cell."""
    return re.search(SOME.get(server_name.split("@")[0], ""), cell.name) is not None


def all_cells():
    copies = [copy_cell(d, label, o) for d in ("read", "write") for label, o in COPIES.items()]
    return copies + [fio_cell(kind, shape) for shape in SHAPES for kind in KINDS]


def chosen(pattern):
    """The cells whose names the regular expression finds; all without one."""
    return [cell for cell in all_cells() if pattern is None or re.search(pattern, cell.name)]
