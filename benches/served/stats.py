"""Medians, ratios within rounds, and intervals of them."""

import math
import statistics

from .servers import OURS, PEERS

# Two-sided 95 % points of Student's t by degrees of freedom; beyond the list, the normal's is near.
T_95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179]
T_95 += [2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]


class Figure:
    """A median with the 95 % interval of the middle it stands for; no interval from one round."""

    def __init__(self, value, low, high, rounds):
        self.value, self.low, self.high, self.rounds = value, low, high, rounds

    def verdict(self, target, at_most=False):
        """`short` when the whole interval misses the target, `met` when all of it is there."""
        if at_most:
            good, bad = self.high <= target, self.low > target
        else:
            good, bad = self.low >= target, self.high < target
        return "met" if good else "short" if bad else "undecided"


def figure(values):
    """Of positive values, one a round: their median, and a t interval of their logarithms."""
    values = list(values)
    if not values or any(v <= 0 for v in values):
        return None
    middle = statistics.median(values)
    if len(values) == 1:
        return Figure(middle, 0.0, math.inf, 1)
    logs = [math.log(v) for v in values]
    freedom = len(logs) - 1
    t = T_95[freedom - 1] if freedom <= len(T_95) else 1.96 + 2.5 / freedom
    mean = statistics.fmean(logs)
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    # The median may lie outside the mean's interval when one round was far off.
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Figure(middle, min(low, middle), max(high, middle), len(values))


def place_in_line(server):
    """The order of columns: contenders as they are listed, each before its variants."""
    base = server.split("@")[0]
    known = [*OURS, *PEERS]
    return (known.index(base) if base in known else len(known), server)


class Table:
    """Rows by (server, cell), and their figures."""

    def __init__(self, rows):
        self.rows = {}
        for row in rows:
            if "error" not in row:
                at = self.rows.setdefault((row["server"], row["cell"]), {})
                at[row["round"]] = row
        self.servers = sorted({server for server, _ in self.rows}, key=place_in_line)
        self.cells = list(dict.fromkeys(cell for _, cell in self.rows))

    def values(self, server, cell, field):
        rows = self.rows.get((server, cell), {})
        return {r: row[field] for r, row in rows.items() if row.get(field) is not None}

    def median(self, server, cell, field):
        values = self.values(server, cell, field)
        return statistics.median(values.values()) if values else None

    def ratios(self, server, other, cell, field):
        """Of each round that both ran: server's value over the other's."""
        top, bottom = self.values(server, cell, field), self.values(other, cell, field)
        return {r: top[r] / bottom[r] for r in sorted(top) if bottom.get(r)}

    def ratio(self, server, other, cell, field="bytes_per_s"):
        return figure(self.ratios(server, other, cell, field).values())

    def mean_ratio(self, server, other, cells, field="bytes_per_s"):
        """The geometric mean over cells of each round's ratios, then over rounds as ever. Rounds
        in which a cell is missing are left out, as another mean would stand beside the others'."""
        by_cell = [self.ratios(server, other, cell, field) for cell in cells]
        by_cell = [ratios for ratios in by_cell if ratios]
        if not by_cell:
            return None
        whole = set.intersection(*(set(ratios) for ratios in by_cell))
        return figure(
            math.exp(statistics.fmean(math.log(ratios[r]) for ratios in by_cell))
            for r in sorted(whole)
        )
