"""Rounds: every server runs a cell before the next cell comes; raw rows as they are measured."""

import json
import time

from .cells import runs
from .machine import Failed, describe, now, say


class Rows:
    """Raw rows, kept, and written as JSON lines where a file was asked for."""

    def __init__(self, path, command):
        self.kept = []
        self.common = {"bench": "served", "machine": describe(), "command": command}
        self.file = None
        if path:
            try:
                self.file = open(path, "a", encoding="utf-8")
            except OSError as e:
                raise Failed(f"{path}: {e.strerror}") from None

    def add(self, server, cell, round_number, **fields):
        row = {**self.common, "date": now(), "round": round_number, "server": server, "cell": cell}
        row |= {k: round(v, 6) if isinstance(v, float) else v for k, v in fields.items()}
        self.kept.append(row)
        if self.file:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()
        if "error" in row:
            say(f"failed: {server}, {cell}: {row['error']}")


def read_rows(path):
    """The rows of a file. Failed where it isn't one of ours."""
    try:
        with open(path, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f if line.strip()]
        return [row for row in rows if (row["server"], row["cell"], row["round"])]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise Failed(f"{path}: no raw rows of this benchmark ({e})") from None


def measured(server, work):
    """Runs `work` against a server and adds what the server used for it."""
    server.forget_peak()
    before = server.cpu_s()
    result = work()
    used = server.cpu_s() - before
    result["cpu_s_per_gib"] = used / (result["bytes"] / (1 << 30))
    result["peak_kib"] = server.memory_kib("VmHWM")
    return result


class Contest:
    """Servers that stay up while all of them run all cells, taking turns."""

    def __init__(self, fleet, names, rows):
        self.rows = rows
        self.fleet = fleet
        self.servers = {}
        for name in names:
            try:
                self.servers[name] = fleet.start(name)
                fleet.check(self.servers[name])
            except Failed as e:
                # The others run on; its rows are missing and the table says so.
                self.servers.pop(name, None)
                rows.add(name, "start", 0, error=str(e))
        if not self.servers:
            raise Failed("no server could be started")

    def run(self, cells, rounds, seconds):
        start = time.monotonic()
        for number in range(1, rounds + 1):
            for index, cell in enumerate(cells):
                names = list(self.servers)
                # Who begins moves on, so that nobody always follows the same neighbour.
                first = (number + index) % len(names)
                for name in names[first:] + names[:first]:
                    if not runs(name, cell):
                        continue
                    self.turn(name, cell, number, seconds)
            passed = time.monotonic() - start
            say(f"round {number} of {rounds}, {passed:.0f} s")

    def turn(self, name, cell, number, seconds):
        server = self.servers[name]
        try:
            result = measured(server, lambda: cell.run(server, self.fleet.volumes, seconds))
            self.rows.add(name, cell.name, number, **result)
        except (Failed, OSError) as e:
            self.rows.add(name, cell.name, number, error=str(e))
            if server.child.poll() is not None:
                say(f"{name} is gone ({server.last_words()}); started again")
                try:
                    self.servers[name] = self.fleet.start(name)
                except Failed as again:
                    self.rows.add(name, "start", number, error=str(again))
                    del self.servers[name]

    def stop(self):
        for server in self.servers.values():
            server.stop()
