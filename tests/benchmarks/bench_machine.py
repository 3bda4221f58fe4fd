"""What it costs to note each second who uses the processors: CPU-seconds an hour, on the generator's machine.

    .venv/bin/python tests/benchmarks/bench_machine.py [--looks 3600]

A real etcd of three members is loaded meanwhile by nobody, as only the number of its processes and threads counts. An
hour's looks are made at once and written to a file, as MachineWatch does. Beside that, the same for a target of which
no process is known. The machine's other processes count too: each look lists them all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.etcd.cluster import EtcdLab  # noqa: E402
from tippingpoint.rundir.journal import Events  # noqa: E402
from tippingpoint.rundir.machine import FILE, USED  # noqa: E402
from tippingpoint.util.kernel_counters import KernelCounters  # noqa: E402


def cost_of(roots: list[int], looks: int) -> tuple[float, int]:
    """Return the CPU-seconds of so many looks, and the bytes that were written."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, FILE)
        log, counters = Events(path), KernelCounters()
        counters.look(roots)
        began = time.process_time()
        for number in range(looks):
            use = counters.look(roots)
            assert use is not None
            log.write(number, USED, **asdict(use))
        return time.process_time() - began, path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--looks", type=int, default=3600)
    looks = parser.parse_args().looks
    with EtcdLab(3) as lab:
        members = sorted(lab.pids.values())
        threads = sum(len(os.listdir(f"/proc/{pid}/task")) for pid in members)
        there = sum(name.isdecimal() for name in os.listdir("/proc"))
        print(f"{there} processes on the machine; the target has {len(members)} with {threads} threads")
        for name, roots in (("three members", members), ("no process known", [])):
            seconds, size = cost_of(roots, looks)
            print(f"{name}: {seconds:.2f} CPU-s for {looks:,} looks, {seconds / looks:.3%} of a core with one each "
                  f"second; {size / looks * 3600 / 1e6:.2f} MB an hour")  # fmt: skip


if __name__ == "__main__":
    main()
