"""What is run against a server, and what it says of its work."""

import json
import re
import time

from .machine import Failed, find, need, run

GIB = 1 << 30


def nbdcopy(source, target, options, payload_bytes, timeout_s):
    """Copies a whole volume; the time is the wall clock's, nbdcopy's start included."""
    start = time.perf_counter()
    run([find("nbdcopy"), *options, source, target], timeout_s)
    return {"bytes_per_s": payload_bytes / (time.perf_counter() - start), "bytes": payload_bytes}


def fio(uri, rw, block_bytes, depth, seconds, jobs=1, target=None, extra=()):
    """fio's word on a run: rates, and latency. `target`: a file, instead of `uri`."""
    need("fio")
    where = [f"--filename={target}"] if target else ["--ioengine=nbd", f"--uri={uri}"]
    out, _ = run(
        [find("fio"), "--name=cell", *where, f"--rw={rw}", f"--bs={block_bytes}"]
        + [f"--iodepth={depth}", f"--numjobs={jobs}", "--group_reporting", "--time_based"]
        + [f"--runtime={round(seconds * 1000)}ms", "--norandommap", "--randrepeat=0"]
        # Latency from before the request is sent: nbd's engine sends within the submission, and a
        # reply that is there when it returns has a completion latency of nearly nothing.
        + ["--lat_percentiles=1", "--clat_percentiles=0", "--disk_util=0"]
        + ["--percentile_list=50:99", "--eta=never", "--output-format=json", *extra],
        timeout_s=seconds * 10 + 30,
    )
    try:
        # Notes may stand before the document.
        job = json.loads(out[out.index("{") :])["jobs"][0]
        side = job["read" if "read" in rw else "write"]
        percentile = side["lat_ns"].get("percentile", {})
        if job["error"] or not side["total_ios"]:
            raise Failed(f"fio: error {job['error']}, {side['total_ios']} requests")
        return {
            "bytes_per_s": side["bw_bytes"],
            "bytes": side["io_bytes"],
            "iops": side["iops"],
            "requests": side["total_ios"],
            "p50_us": percentile["50.000000"] / 1000,
            "p99_us": percentile["99.000000"] / 1000,
        }
    except (ValueError, KeyError, IndexError) as e:
        raise Failed(f"fio said what can't be read ({e!r}): {out[:200]!r}") from None


def dd(arguments, timeout_s):
    """dd's own word on how many bytes it moved in which time, sync included."""
    _, err = run([find("dd"), *arguments], timeout_s, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    found = re.search(r"^(\d+) bytes.* copied, ([\d.e+-]+) s", err, re.M)
    if not found:
        raise Failed(f"dd said what can't be read: {err!r}")
    count, seconds = int(found[1]), float(found[2])
    return {"bytes": count, "bytes_per_s": count / max(seconds, 1e-9)}
