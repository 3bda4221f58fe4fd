"""What keys of etcd cost the generator, beside etcd's own `benchmark` and grpc.aio: CPU of a put, a get and an event.

    .venv/bin/python tests/benchmarks/bench_store.py [--peer PATH] [--part PARTS]

PATH is etcd's `benchmark` (tools/benchmark of go.etcd.io/etcd/v3), built elsewhere. All sides load the same private
etcd in turns, at one rate over one connection. Ours is the whole load of a worker, with its records and checks. CPU is
that of the time in which the load is on; for `benchmark` it is that of the process. Without grpcio, grpc.aio is left
out.

- events: so many watchers of one prefix, and so many puts a second; CPU for each event that reaches a watcher
- memory: a process with 10,000 watchers
- blocked: puts that wait for the windows of a server that grants none; it needs no etcd
- stall: all members stand still for five seconds under 500 puts a second; what each side says its p99 is
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.etcd.cluster import EtcdLab  # noqa: E402
from tests.benchmarks.sides import cpu_seconds  # noqa: E402

_KEYS, _BYTES = 1000, 256
_STALL_S = 5.0


def resident_mb() -> float:
    """This process's resident memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def ours(
    endpoints: list[str], operation: str, rate: int, seconds: int, watchers: int
) -> dict[str, Any]:
    """Put a worker's load on etcd for some seconds."""
    from tippingpoint.plan.store import StorePlan, StoreStage
    from tippingpoint.rundir.recorder import Recorder
    from tippingpoint.targets.etcd.access import Scope
    from tippingpoint.targets.etcd.messages import after_prefix
    from tippingpoint.targets.etcd.plan import EtcdTarget
    from tippingpoint.targets.etcd.v3_store import V3Store
    from tippingpoint.workloads.load import StageOrder
    from tippingpoint.workloads.schedule import Schedule
    from tippingpoint.workloads.store.workload import StoreLoad

    target = EtcdTarget(endpoints=endpoints)  # type: ignore[arg-type]
    stage = StoreStage(operations=rate, watchers=watchers, keys=_KEYS, hold=seconds, over=0.0)
    plan = StorePlan.model_validate(
        {
            "name": "bench",
            "target": target,
            "workload": {"kind": "store", "mix": {operation: 1}, "bytes": _BYTES, "prefixes": 1},
            "stages": [stage],
        }
    )
    scope = Scope(f"/tippingpoint/bench-{os.getpid()}/", os.getpid() << 32)
    store, recorder = V3Store(target, scope), Recorder()
    schedule = Schedule(asyncio.get_running_loop())
    load = StoreLoad(plan, store, scope.prefix.encode(), after_prefix, recorder, schedule)
    await load.open()
    order = StageOrder(number=1, size=rate, kind="ramp", spec=stage, over=0.0, share=(0, 1), listed=1)
    await load.begin_stage(order)
    while not load.gauge.up:  # noqa: ASYNC110 - the load has no event for it
        await asyncio.sleep(0.1)
    recorder.drain()
    before, counts = cpu_seconds(), dict[str, int]()
    began = time.monotonic()
    samples: dict[str, Any] = {}
    while time.monotonic() - began < seconds:
        await asyncio.sleep(1.0)
        load.expire_calls()
        for name, found in recorder.drain().items():
            counts[name] = counts.get(name, 0) + found.total
            samples[name] = found.max
    used, lasted, memory = cpu_seconds() - before, time.monotonic() - began, resident_mb()
    load.stop()
    await load.drain(2.0)
    await load.give_back(0.0)
    await store.clear(scope.prefix.encode(), after_prefix(scope.prefix.encode()))
    await load.close()
    schedule.close()
    done = counts.get(f"{operation}.ok", 0)
    return {
        "cpu": used,
        "done": done,
        "events": counts.get("watch-event.ok", 0),
        "rate": done / lasted,
        "mb": memory,
    }


async def grpc_aio(endpoints: list[str], operation: str, rate: int, seconds: int, _: int) -> dict[str, Any]:
    """The same by grpc.aio: a task for each call, sent when it is due."""
    import grpc.aio

    from tippingpoint.targets.etcd import messages as pb

    value = os.urandom(_BYTES)
    keys = [b"/tippingpoint/bench-aio/%d" % number for number in range(_KEYS)]
    done = 0
    async with grpc.aio.insecure_channel(endpoints[0].removeprefix("http://")) as channel:
        call: Any = channel.unary_unary(pb.PUT if operation == "put" else pb.RANGE)

        async def one(number: int) -> None:
            nonlocal done
            key = keys[number % _KEYS]
            pb.revision(await call(pb.put(key, value) if operation == "put" else pb.key_range(key)))
            done += 1

        before, began = cpu_seconds(), time.monotonic()
        tasks: list[asyncio.Task[None]] = []
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            tasks.append(asyncio.create_task(one(number)))
        await asyncio.gather(*tasks)
        used, lasted = cpu_seconds() - before, time.monotonic() - began
        clear: Any = channel.unary_unary(pb.DELETE_RANGE)
        await clear(pb.delete_range(b"/tippingpoint/bench-aio/", b"/tippingpoint/bench-aio0"))
    return {"cpu": used, "done": done, "rate": done / lasted}


def child(options: list[str]) -> None:
    import uvloop

    kind, endpoints, operation, rate, seconds, watchers = options
    side = {"ours": ours, "grpc.aio": grpc_aio}[kind]
    found = uvloop.run(side(endpoints.split(","), operation, int(rate), int(seconds), int(watchers)))
    print(json.dumps(found))


def measured(
    lab: EtcdLab, kind: str, operation: str, rate: int, seconds: int, watchers: int = 0
) -> dict[str, Any]:
    """One side in a process of its own, which imported all before it measures."""
    numbers = map(str, (rate, seconds, watchers))
    command = [sys.executable, __file__, "--child", kind, lab.endpoints[0], operation, *numbers]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, check=True).stdout
    return json.loads(said)  # type: ignore[no-any-return]


def of_peer(command: list[str]) -> tuple[float, float, str]:
    """The CPU-seconds and the seconds of a process, and what it says."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {said[-1000:]}")
    return used.ru_utime + used.ru_stime, time.monotonic() - began, said


def peer_command(peer: Path, lab: EtcdLab, *words: str) -> list[str]:
    return [str(peer), f"--endpoints={lab.endpoints[0].removeprefix('http://')}", "--conns=1", *words]


def calls(lab: EtcdLab, peer: Path | None, operation: str, rate: int, seconds: int, rounds: int) -> None:
    """CPU of a put or a get, side by side."""
    took: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind in ("ours", "grpc.aio") if find_spec("grpc") else ("ours",):
            found = measured(lab, kind, operation, rate, seconds)
            took.setdefault(kind, []).append(1e6 * found["cpu"] / found["done"])
            took.setdefault(f"{kind} rate", []).append(found["rate"])
        if peer is not None:
            total = str(rate * seconds)
            put = ["put", f"--val-size={_BYTES}", f"--key-space-size={_KEYS}", "--key-size=32"]
            words = put if operation == "put" else ["range", "key", "--consistency=l"]
            command = peer_command(peer, lab, "--clients=100", *words, f"--total={total}", f"--rate={rate}")
            used, lasted, _ = of_peer(command)
            took.setdefault("benchmark", []).append(1e6 * used / int(total))
            took.setdefault("benchmark rate", []).append(int(total) / lasted)
    print(f"{operation} at {rate}/s for {seconds} s, medians of {rounds}:")
    for side in ("ours", "grpc.aio", "benchmark"):
        if side in took:
            of_ours = statistics.median(took["ours"]) / statistics.median(took[side])
            print(
                f"  {side:10} {statistics.median(took[side]):6.0f} us of CPU each, "
                f"{statistics.median(took[f'{side} rate']):6.0f}/s; ours takes {of_ours:.2f} of that"
            )


def events(lab: EtcdLab, peer: Path | None, seconds: int) -> None:
    """CPU of an event that reaches a watcher."""
    watchers, rate = 1000, 5
    found = measured(lab, "ours", "put", rate, seconds, watchers)
    print(f"{watchers} watchers, {rate} puts/s for {seconds} s:")
    print(
        f"  ours       {1e6 * found['cpu'] / found['events']:6.1f} us of CPU an event ({found['events']:,} events)"
    )
    if peer is not None:
        puts = rate * seconds
        words = ["watch", "--streams=1", f"--watch-per-stream={watchers}", "--watched-key-total=1"]
        more = [f"--put-total={puts}", f"--put-rate={rate}"]
        used, _, _ = of_peer(peer_command(peer, lab, "--clients=1", *words, *more))
        print(
            f"  benchmark  {1e6 * used / (puts * watchers):6.1f} us of CPU an event, its watches and puts included"
        )


class _Nowhere(asyncio.Transport):
    """A socket whose other side never answers."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def blocked() -> None:
    """CPU of a put that is sent while others wait for a window, by how many are sent."""
    from tippingpoint.targets.etcd.http2 import Connection, Stream

    async def wait(count: int) -> float:
        connection = Connection(asyncio.get_running_loop(), lambda *_: None)
        connection.connection_made(_Nowhere())
        before = cpu_seconds()
        for _ in range(count):
            connection.open(Stream(), b"\x88", b"x" * _BYTES, end=True)
            await asyncio.sleep(0)
        return cpu_seconds() - before

    for count in (1000, 8000):
        print(
            f"{count} puts that wait for a window: {1e6 * asyncio.run(wait(count)) / count:.1f} us of CPU each"
        )


def stall(peer: Path | None) -> None:
    """All members stand still: what a client says of it."""
    print(f"three members stand still for {_STALL_S:g} s under 500 puts/s for 20 s:")
    from tests.functional.program import only_run, run, settings, write_plan

    with EtcdLab(members=3) as lab:
        import tempfile

        faults = [
            {"do": "stop", "member": name, "stage": 1, "at": "5s", "undo_after": f"{_STALL_S:g}s"}
            for name in lab.names
        ]
        workload = {"kind": "store", "mix": {"put": 1}, "bytes": _BYTES, "timeout": "30s"}
        stage = {"operations": 500, "keys": _KEYS, "over": 0, "hold": "20s"}
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch)
            plan = write_plan(out, workload=workload, stages=[stage], thresholds=[], faults=faults)
            run("run", plan, *settings(lab), "--out", out / "runs")
            (measured_stage,) = only_run(out / "runs").stages
            p50, p99, most = measured_stage.response("put").percentiles([50, 99, 100])
        print(f"  ours       p50 {p50 / 1e3:.1f} ms, p99 {p99 / 1e3:.0f} ms, slowest {most / 1e3:.0f} ms")
        if peer is None:
            return
        words = ["put", f"--val-size={_BYTES}", f"--key-space-size={_KEYS}", "--key-size=32"]
        command = [
            str(peer),
            f"--endpoints={','.join(each.removeprefix('http://') for each in lab.endpoints)}",
            *("--conns=3", "--clients=3", *words, "--total=10000", "--rate=500"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(5.0)
        for name in lab.names:
            lab.stop(name)
        time.sleep(_STALL_S)
        for name in lab.names:
            lab.resume(name)
        said, _ = process.communicate()
        wanted = [
            line.strip()
            for line in said.splitlines()
            if "99% in" in line or "Slowest" in line or "50% in" in line
        ]
        print(f"  benchmark  {'; '.join(wanted)}")


def of_one_member(options: argparse.Namespace, parts: list[str]) -> None:
    with EtcdLab(members=1) as lab:
        for part, operation in (("puts", "put"), ("gets", "get")):
            if part in parts:
                calls(lab, options.peer, operation, options.rate, options.seconds, options.rounds)
        if "events" in parts:
            events(lab, options.peer, options.seconds)
        if "memory" in parts:
            found = measured(lab, "ours", "put", 1, options.seconds, options.watchers)
            print(
                f"{options.watchers:,} watchers in one process: {found['mb']:.0f} MB, {found['events']:,} events"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, help="etcd's own `benchmark`")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--watchers", type=int, default=10_000, help="of memory")
    parser.add_argument("--part", default="puts,gets,events,memory,blocked,stall")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    parts = options.part.split(",")
    if "blocked" in parts:
        blocked()
    if {"puts", "gets", "events", "memory"} & set(parts):
        of_one_member(options, parts)
    if "stall" in parts:
        stall(options.peer)


if __name__ == "__main__":
    main()
