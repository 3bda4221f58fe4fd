"""What recording one sample costs, its share of the interval's end included, beside the kept Python port.

Run by hand: python tests/benchmarks/bench_record.py. Prints medians of CPU microseconds a sample and the ratio.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from tippingpoint.rundir.journal import Journal
from tippingpoint.rundir.recorder import Recorder

INTERVALS = 20
PER_INTERVAL = 1000


def ours(samples: list[int]) -> float:
    with tempfile.TemporaryDirectory() as place:
        recorder, journal = Recorder(), Journal(Path(place), "0", 0.0)
        record = recorder.appender("extend.ok")
        cpu = time.process_time()
        for interval in range(INTERVALS):
            for sample in samples:
                record(sample)
            journal.interval(interval, interval + 1, recorder.drain())
        return (time.process_time() - cpu) / (INTERVALS * len(samples)) * 1e6


def peer(samples: list[int]) -> float:
    cpu = time.process_time()
    for _ in range(INTERVALS):
        histogram = HdrHistogram(1, 3_600_000_000, 3)
        for sample in samples:
            histogram.record_value(sample)
        histogram.encode()
    return (time.process_time() - cpu) / (INTERVALS * len(samples)) * 1e6


def main() -> None:
    samples = [int(v) + 1 for v in np.random.default_rng(1).lognormal(7.5, 0.8, PER_INTERVAL)]
    rounds = [(ours(samples), peer(samples)) for _ in range(7)]
    mine, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"{PER_INTERVAL} samples an interval: ours {mine:.2f} us a sample, the kept port {theirs:.2f} us, "
          f"ratio {theirs / mine:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
