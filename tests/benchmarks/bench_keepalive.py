"""Keepalives per second of the client's CPU: ours, grpc.aio's, and etcd's own benchmark, side by side.

    .venv/bin/python tests/benchmarks/bench_keepalive.py [--peer PATH] [--memory]

PATH is etcd's `benchmark` (tools/benchmark of go.etcd.io/etcd/v3), built elsewhere; its figure is that of
`benchmark lease-keepalive`, which opens a stream for every keepalive. All run against the same private
etcd, in turns, as many clients at a time, each client sending its next keepalive when it has an answer.
A process's CPU is all it used, start included; `running` leaves the interpreter's start and imports out.
--memory adds the resident memory of one process with 20,000 leases held and 40,000 units waiting.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.etcd.cluster import EtcdLab  # noqa: E402
from tests.benchmarks.sides import cpu_seconds  # noqa: E402


def resident() -> dict[str, float]:
    """This process's resident memory and its peak, in MB."""
    status = Path("/proc/self/status").read_text()
    return {name: int(status.split(f"{name}:")[1].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


async def each_in_turn(clients: int, total: int, send: Callable[[int, Callable[[], None]], None]) -> None:
    """Have every client call `send(client, answered)` again once it is answered, `total` times in all."""
    done = asyncio.Event()
    left = total
    under_way = 0

    def client(number: int) -> Callable[[], None]:
        def answered() -> None:
            nonlocal under_way
            under_way -= 1
            go()

        def go() -> None:
            nonlocal left, under_way
            if left:
                left -= 1
                under_way += 1
                send(number, answered)
            elif not under_way:
                done.set()

        return go

    for start in [client(number) for number in range(clients)]:
        start()
    await done.wait()


async def ours(endpoints: list[str], clients: int, total: int) -> None:
    from tippingpoint.plan.claim import ClaimWorkload
    from tippingpoint.targets.etcd.access import Scope
    from tippingpoint.targets.etcd.claim import connect
    from tippingpoint.targets.etcd.plan import EtcdTarget

    scope = Scope(f"/tippingpoint/bench-{os.getpid()}/", os.getpid() << 32)
    target = connect(EtcdTarget(endpoints=endpoints), ClaimWorkload(), scope)
    await target.open()
    holdings = [
        holding for holding in await asyncio.gather(*(target.claim(i, 0) for i in range(clients))) if holding
    ]
    assert len(holdings) == clients

    def send(number: int, answered: Callable[[], None]) -> None:
        def done(future: asyncio.Future[bool]) -> None:
            assert future.result()
            answered()

        target.extend(holdings[number]).add_done_callback(done)

    await each_in_turn(clients, total, send)
    await target.close()


async def grpc_aio(endpoints: list[str], clients: int, total: int) -> None:
    """One persistent stream, a task that writes and one that reads: the cheapest way grpc.aio offers."""
    import grpc.aio

    from tippingpoint.targets.etcd import messages as pb

    async with grpc.aio.insecure_channel(endpoints[0].removeprefix("http://")) as channel:
        grant: Any = channel.unary_unary(pb.GRANT)
        leases = [(os.getpid() << 32) + number + 1 for number in range(clients)]
        await asyncio.gather(*(grant(pb.lease_grant(60, lease)) for lease in leases))
        stream: Any = channel.stream_stream(pb.KEEP_ALIVE)()
        waiting: dict[int, Callable[[], None]] = {}
        requests: asyncio.Queue[int] = asyncio.Queue()

        def send(number: int, answered: Callable[[], None]) -> None:
            waiting[leases[number]] = answered
            requests.put_nowait(leases[number])

        async def write() -> None:
            while True:
                await stream.write(pb.lease_keep_alive(await requests.get()))

        async def read() -> None:
            while True:
                waiting.pop(pb.keep_alive_lease(await stream.read()))()

        tasks = [asyncio.create_task(write()), asyncio.create_task(read())]
        await each_in_turn(clients, total, send)
        for task in tasks:
            task.cancel()
        stream.cancel()


async def hold(endpoints: list[str], leases: int, units: int) -> dict[str, float]:
    """Hold leases with all other units waiting, extend each once over 30 s, and report the memory."""
    from tippingpoint.plan.claim import ClaimWorkload
    from tippingpoint.targets.etcd.access import Scope
    from tippingpoint.targets.etcd.claim import connect
    from tippingpoint.targets.etcd.plan import EtcdTarget
    from tippingpoint.workloads.claim.target import Holding

    scope = Scope(f"/tippingpoint/bench-{os.getpid()}/", os.getpid() << 32)
    workload = ClaimWorkload(claim_time=600.0, renew_time=30.0)
    target = connect(EtcdTarget(endpoints=endpoints), workload, scope)
    await target.open()
    holdings: list[Holding] = []
    released = 0

    def on_release() -> None:
        nonlocal released
        released += 1

    started, used = time.monotonic(), cpu_seconds()
    batch = 100
    for holder in range(units):
        for first in range(0, leases, batch):
            numbers = range(first, first + batch)
            for lease, holding in zip(
                numbers,
                await asyncio.gather(*(target.claim(lease, holder) for lease in numbers)),
                strict=True,
            ):
                if holding is None:
                    target.watch_release(lease, holder, on_release)
                else:
                    holdings.append(holding)
    claim_wall, claim_cpu = time.monotonic() - started, cpu_seconds() - used
    used = cpu_seconds()
    for tenth in range(300):
        part = holdings[tenth::300]
        assert all(await asyncio.gather(*map(target.extend, part)))
        await asyncio.sleep(0.1)
    extend_cpu = cpu_seconds() - used
    assert len(holdings) == leases
    assert released == 0
    memory = resident()
    await target.close()
    return {**memory, "claim_s": claim_wall, "claim_cpu_s": claim_cpu, "extend_cpu_s": extend_cpu}


def child(kind: str, endpoints: list[str], clients: int, total: int) -> None:
    import uvloop

    if kind == "hold":
        print(json.dumps(uvloop.run(hold(endpoints, total, clients))))
        return
    run = {"ours": ours, "grpc.aio": grpc_aio}[kind]
    # Imported here, so that `running` leaves it out.
    import tippingpoint.plan.claim
    import tippingpoint.targets.etcd.claim
    import tippingpoint.targets.etcd.plan
    import tippingpoint.targets.etcd.v3  # noqa: F401

    if kind == "grpc.aio":
        import grpc.aio  # noqa: F401
    before = cpu_seconds()
    uvloop.run(run(endpoints, clients, total))
    print(json.dumps({"running": cpu_seconds() - before}))


def measured(command: list[str]) -> tuple[float, float, str]:
    """A process's CPU seconds, wall seconds and output."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPOSITORY
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, time.monotonic() - started, output


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, help="etcd's own `benchmark`")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--total", type=int, default=100_000, help="keepalives of one process")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="20,000 leases x 3 units in one process")
    parser.add_argument("--leases", type=int, default=20_000, help="with --memory")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, endpoints, clients, total = options.child
        child(kind, endpoints.split(","), int(clients), int(total))
        return
    with EtcdLab(members=options.members) as lab:
        me = [sys.executable, str(Path(__file__).resolve()), "--child"]
        if options.memory:
            print(
                f"{options.leases} leases x 3 units on {options.members} member(s), one process:", flush=True
            )
            _, _, said = measured([*me, "hold", ",".join(lab.endpoints), "3", str(options.leases)])
            found = json.loads(said)
            print(
                f"  resident {found['VmRSS']:.0f} MB (peak {found['VmHWM']:.0f} MB); "
                f"{3 * options.leases / found['claim_s']:.0f} claims/s, "
                f"{found['claim_cpu_s'] / 3 / options.leases * 1e6:.0f} us of CPU each; "
                f"extensions at {options.leases / 30:.0f}/s: {found['extend_cpu_s'] / options.leases * 1e6:.0f} us each"
            )
            return
        # One endpoint and one connection for everybody: the peer's default.
        endpoint, clients, total = lab.endpoints[0], str(options.clients), str(options.total)
        commands = {kind: [*me, kind, endpoint, clients, total] for kind in ("ours", "grpc.aio")}
        if options.peer:
            peer = [
                str(options.peer.resolve()),
                f"--endpoints={endpoint}",
                f"--clients={clients}",
                "--conns=1",
            ]
            commands["etcd benchmark"] = [*peer, "lease-keepalive", f"--total={total}"]
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(options.rounds):
            for kind, command in commands.items():
                used, wall, said = measured(command)
                rates = found.setdefault(kind, {"whole": [], "running": [], "wall": []})
                rates["whole"].append(options.total / used)
                rates["wall"].append(options.total / wall)
                if kind in ("ours", "grpc.aio"):
                    rates["running"].append(options.total / json.loads(said)["running"])
                elif "Requests/sec" not in said:
                    raise SystemExit(f"{kind}: no result: {said[-200:]}")
        print(f"{total} keepalives, {clients} clients, {options.rounds} rounds in turns; medians")
        base = statistics.median(found["ours"]["whole"])
        for kind, rates in found.items():
            whole, wall = (statistics.median(rates[name]) for name in ("whole", "wall"))
            running = statistics.median(rates["running"]) if rates["running"] else whole
            print(
                f"  {kind:15} {whole:9.0f} per CPU second ({running:.0f} running), {wall:9.0f} per second, "
                f"range {min(rates['whole']):.0f}..{max(rates['whole']):.0f}; ours is {base / whole:.1f} times that"
            )


if __name__ == "__main__":
    main()
