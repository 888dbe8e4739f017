"""The arithmetic behind the verdicts: `python3 -m unittest discover -s benches -t benches`."""

import unittest

from served.stats import Table, figure
from served.targets import all_targets


def row(server, cell, number, **fields):
    return {"server": server, "cell": cell, "round": number, **fields}


class Figures(unittest.TestCase):
    def test_interval_is_students(self):
        # Logs -1, 0, 1, 2, 3 (base e): mean 1, s² = 2.5, t(4) = 2.776; half = 1.963.
        e = 2.718281828459045
        f = figure([e**-1, 1, e, e**2, e**3])
        self.assertAlmostEqual(f.value, e)
        self.assertAlmostEqual(f.low, e ** (1 - 1.963), places=2)
        self.assertAlmostEqual(f.high / e ** (1 + 1.963), 1, places=2)

    def test_verdicts(self):
        f = figure([1.0, 1.01, 1.02, 0.99, 1.0])
        self.assertEqual(f.verdict(0.9), "met")
        self.assertEqual(f.verdict(1.1), "short")
        self.assertEqual(f.verdict(1.0), "undecided")
        self.assertEqual(f.verdict(1.1, at_most=True), "met")
        self.assertEqual(f.verdict(0.9, at_most=True), "short")
        self.assertEqual(figure([5.0]).verdict(1.0), "undecided", "one round has no spread")

    def test_nothing_measured_is_no_figure(self):
        self.assertIsNone(figure([]))
        self.assertIsNone(figure([1.0, 0.0]))

    def test_ratios_pair_within_rounds(self):
        rows = [row("a", "c", n, x=v) for n, v in ((1, 10), (2, 400), (3, 9))]
        rows += [row("b", "c", n, x=v) for n, v in ((1, 5), (2, 200))]
        table = Table(rows)
        self.assertEqual(table.ratios("a", "b", "c", "x"), {1: 2.0, 2: 2.0})

    def test_means_need_whole_rounds(self):
        rows = [row(s, c, n, x=v) for s, v in (("a", 4), ("b", 1)) for c in "cd" for n in (1, 2)]
        rows += [row("a", "c", 3, x=100), row("b", "c", 3, x=1)]
        f = Table(rows).mean_ratio("a", "b", ["c", "d"], "x")
        self.assertEqual((f.value, f.rounds), (4.0, 2))

    def test_failures_count_nowhere(self):
        rows = [row("a", "c", 1, error="it fell"), row("a", "c", 2, x=3)]
        self.assertEqual(Table(rows).values("a", "c", "x"), {2: 3})

    def test_one_bad_cell_fails_its_target(self):
        rates = {("nbdkit", "fio-read-4k-qd1"): 1, ("nbdkit", "fio-write-1m-qd8"): 1}
        rates |= {("luks2-512", "fio-read-4k-qd1"): 3, ("luks2-512", "fio-write-1m-qd8"): 0.7}
        rows = [
            row(server, cell, n, bytes_per_s=rate * (1 + n / 1000))
            for (server, cell), rate in rates.items()
            for n in range(5)
        ]
        sections = dict(all_targets(Table(rows)))
        lines = {line.what: line for line in sections["luks2-512 beside plaintext"]}
        self.assertEqual(lines["every cell"].verdict(), "short")
        self.assertEqual(lines["every cell"].worst()[0], "fio-write-1m-qd8")
        self.assertEqual(lines["QD1 cells"].verdict(), "met")
        self.assertEqual(lines["nbdcopy read"].verdict(), "not measured")


if __name__ == "__main__":
    unittest.main()
