"""How long a report over 100 one-hour journals takes: 100 workers, an extension each 30 s for 160 leases a second each.

Run by hand: python tests/benchmarks/bench_report.py [JOURNALS]. Prints wall and CPU seconds, peak memory, and the
same for HdrHistogram's kept Python port reading one of the journals, as a ratio per journal.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]
from hdrh.log import HistogramLogReader  # type: ignore[import-untyped]

from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry
from tippingpoint.rundir.results import load_run
from tippingpoint.rundir.tags import LOOP_LAG, SCHEDULE_LAG

SECONDS = 3600
PER_SECOND = 160
STAGES = 6


def write_journals(directory: Path, count: int) -> None:
    """A run of `count` workers; latencies are log-normal around 2 ms, and rise with the stage."""
    chance = np.random.default_rng(1)

    def pool(middle: float, samples: int) -> list[str]:
        return [
            Histogram.of(np.maximum(1, chance.lognormal(np.log(middle), 0.5, samples))).encode()
            for _ in range(200)
        ]

    tags = {
        "extend.ok": [pool(2000 * 2**stage, PER_SECOND) for stage in range(STAGES)],
        "extend.ok.service": [pool(1900 * 2**stage, PER_SECOND) for stage in range(STAGES)],
        SCHEDULE_LAG: [pool(80, PER_SECOND)] * STAGES,
        LOOP_LAG: [pool(80, 20)] * STAGES,
    }
    Manifest(
        id="bench", title="bench", target=TargetEntry(kind="etcd"), status="complete", started=1.7e9,
        workers=[WorkerEntry(name=str(number), status="complete") for number in range(count)],
    ).save(directory)  # fmt: skip
    Events(directory / "events.jsonl").close(directory)
    for number in range(count):
        journal = Journal(directory, str(number), 1.7e9)
        with open(directory / f"worker-{number}.hlog", "a") as log:
            for second in range(SECONDS):
                stage = second * STAGES // SECONDS
                for tag, pools in tags.items():
                    chosen = pools[stage][(second * 7 + number) % 200]
                    log.write(f"Tag={tag},{second}.000,1.000,30.000,{chosen}\n")
        for stage in range(STAGES):
            begin, length = stage * SECONDS / STAGES, SECONDS / STAGES
            mark = {"stage": stage + 1, "size": 1000 * 2**stage, "kind": "ramp"}
            journal.events.write(begin, "stage", **mark, phase="begin")
            journal.events.write(begin + 30, "stage", **mark, phase="hold")
            journal.events.write(begin + length, "stage", **mark, phase="end")
        for second in range(SECONDS):
            journal.events.write(
                second, "tick", held=4800, waiting=9600, in_flight=3, cpu=0.1, loop_lag=1.5, rss=110.0
            )
        journal.close(directory)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        write_journals(directory, count)
        size = sum(path.stat().st_size for path in directory.iterdir())
        began, cpu = time.perf_counter(), time.process_time()
        run = load_run(directory)
        loaded = time.perf_counter() - began
        page = write_report(analyse(run), "html")
        wall = time.perf_counter() - began
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = time.process_time() - cpu + children.ru_utime + children.ru_stime
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{count} journals of {SECONDS} s, {size / 2**20:.0f} MiB: report in {wall:.1f} s "
              f"(read {loaded:.1f} s), {spent:.1f} CPU-s, {peak:.0f} MiB, page {len(page) / 1024:.0f} KiB")  # fmt: skip
        cpu = time.process_time()
        reader = HistogramLogReader(str(directory / "worker-0.hlog"), HdrHistogram(1, 3_600_000_000, 3))
        merged: dict[str, HdrHistogram] = {}
        for _ in range(1000):
            histogram = reader.get_next_interval_histogram()
            merged.setdefault(histogram.get_tag(), HdrHistogram(1, 3_600_000_000, 3)).add(histogram)
        peer = (time.process_time() - cpu) / 1000 * 4 * SECONDS
        ours = spent / count
        print(
            f"one journal: ours {ours:.2f} CPU-s, the kept port's reader {peer:.1f} CPU-s, ratio {peer / ours:.0f}"
        )


if __name__ == "__main__":
    main()
