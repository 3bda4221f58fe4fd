"""What booting and deleting servers costs a client and Keystone: beside Rally, openstacksdk and raw aiohttp.

    TIPPINGPOINT_OPENSTACK_PEERS=VENV .venv/bin/python tests/benchmarks/bench_openstack.py [--count 50] [--at 5]
        [--computes 4] [--sides rally,sdk,aiohttp,ours]

VENV is an environment with rally 5.1.1, rally-openstack 4.1.0 and openstacksdk 4.22, which pin what this project has in
other versions; without it their sides are left out:

    uv venv VENV && uv pip install --python VENV rally==5.1.1 rally-openstack==4.1.0 openstacksdk setuptools

All sides ask the same real control plane (lab/openstack/cloud.py) in turn: COUNT servers without a network,
AT at a time, each booted, waited for until it is ACTIVE, deleted, and waited for until it is gone, looking twice a
second. Ours looks at all servers by one list of what has changed, the loops at each by itself: a list takes longer than
one server (its median stands in the table), and so do boots, by that and by the wait for the next list. A side is a
process of its own:

rally    NovaServers.boot_and_delete_server by `rally task start`, with the administrator, for users of its own
sdk      openstacksdk: a thread and a connection each for so many at a time
aiohttp  our aiohttp: one token, a GET for each server: the least that such a loop can take
ours     `tippingpoint run openstack-boot-delete` with one worker

Client CPU is user and system time for each iteration: of rally what COUNT take more than one does, without start and
report; of ours what runner and worker take from the stage's begin to its end; of the others the loop's own, beside
which stands that of our worker ("loop"). Keystone's is what its
processes took meanwhile, for COUNT. Rally's result is imported (`tippingpoint import`), and its percentiles stand
beside those of its own table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.sides import cpu_seconds, runner_cpu, timed, worker_cpu  # noqa: E402

if TYPE_CHECKING:  # the peers' interpreter has no use for it
    from lab.openstack.cloud import OpenstackLab

PEERS = "TIPPINGPOINT_OPENSTACK_PEERS"
GOALS = {"rally": 0.1, "aiohttp": 1.2}
"""At most this share of a side's client CPU for an iteration."""
KEYSTONE_GOAL = 0.05
"""At most this share of what Rally costs Keystone."""
OF_PEERS = ("rally", "sdk")
"""The sides that need the peers' environment."""
POLL_S = 0.5
"""Seconds between looks of every side."""
_SCENARIO = "NovaServers.boot_and_delete_server"
_WAIT_S = 900.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Turn:
    """One side's task: so many iterations, so many at a time, and where."""

    lab: OpenstackLab
    peers: Path | None
    count: int
    at: int

    def python(self) -> Path:
        """The peers' interpreter."""
        if self.peers is None:
            raise SystemExit(
                f"{PEERS}: not set: expected an environment with {' and '.join(OF_PEERS)}; see --help"
            )
        return self.peers / "bin" / "python"


@dataclass
class Cost:
    """What a side took: client CPU-seconds an iteration, seconds of the load, Keystone's CPU-seconds, and the boots."""

    cpu: float
    loop: float
    """Of that what the loop itself took, without what begins, watches and ends it; for rally it cannot be told."""
    seconds: float
    keystone: float
    boots: list[float] = field(default_factory=list[float])
    percentiles: dict[int, float] = field(default_factory=dict[int, float])
    notes: list[str] = field(default_factory=list[str])


def rally(turn: Turn) -> Cost:
    """Rally itself, and what its result comes to once imported."""
    from tippingpoint.importers.rally import import_rally
    from tippingpoint.rundir.results import load_run

    program = turn.python().with_name("rally")
    with tempfile.TemporaryDirectory() as home:
        base = Path(home)
        options = "".join(
            f"nova_server_{what}_poll_interval={POLL_S}\nnova_server_{what}_prepoll_delay=0.2\n"
            for what in ("boot", "delete")
        )
        (base / "rally.conf").write_text(
            f"[database]\nconnection=sqlite:///{base}/rally.db\n[openstack]\n{options}"
        )
        (base / "env.json").touch(0o600)
        (base / "env.json").write_text(json.dumps({"existing@openstack": _administrator(turn.lab)}))
        environment = {**os.environ, "HOME": home, "PATH": f"{program.parent}:{os.environ['PATH']}"}

        def call(*arguments: str) -> float:
            return timed([str(program), f"--config-file={base / 'rally.conf'}", *arguments], environment)[1]

        def start(count: int) -> float:
            task = base / "task.json"
            arguments = {"flavor": {"name": turn.lab.flavor}, "image": {"name": turn.lab.image}}
            runner = {"type": "constant", "times": count, "concurrency": min(turn.at, count)}
            context = {"users": {"tenants": 1, "users_per_tenant": 1}}
            task.write_text(
                json.dumps({_SCENARIO: [{"args": arguments, "runner": runner, "context": context}]})
            )
            return call("task", "start", str(task))

        call("db", "create")
        call("env", "create", "--name=lab", f"--spec={base / 'env.json'}")
        start(1)  # compiles what the next one loads
        alone = start(1)
        keystone = _keystone_seconds(turn.lab)
        whole = start(turn.count)
        keystone = _keystone_seconds(turn.lab) - keystone
        call("task", "report", "--json", f"--out={base / 'result.json'}")
        told = json.loads((base / "result.json").read_text())["tasks"][0]["subtasks"][0]["workloads"][0]
        (directory,) = import_rally(base / "result.json", base / "runs")
        (stage,) = load_run(directory).stages
    boots = [
        action["finished_at"] - action["started_at"]
        for iteration in told["data"]
        for action in iteration["atomic_actions"]
        if action["name"] == "nova.boot_server"
    ]
    ours = dict(zip((50, 90, 95), stage.response("boot_server").percentiles([50, 90, 95]), strict=True))
    table = next(
        row["data"] for row in told["statistics"]["durations"]["atomics"] if row["name"] == "nova.boot_server"
    )
    agreed = ", ".join(
        f"{percentile} %ile {table[name]} / {ours[percentile] / 1e6:.3f}"
        for percentile, name in ((50, "median"), (90, "90%ile"), (95, "95%ile"))
    )
    each = (whole - alone) / max(1, turn.count - 1)
    cost = Cost(each, each, told["load_duration"], keystone, boots)
    cost.notes.append(f"Rally's table / imported: {agreed} s")
    return cost


def _administrator(lab: OpenstackLab) -> dict[str, Any]:
    """The lab's administrator as a Rally environment has them."""
    cloud = _cloud(lab.clouds, "admin")
    names = ("username", "password", "project_name", "user_domain_name", "project_domain_name")
    admin = {"user_domain_name": "Default", "project_domain_name": "Default"} | {
        name: cloud["auth"][name] for name in names if name in cloud["auth"]
    }
    where = {"auth_url": cloud["auth"]["auth_url"], "region_name": cloud["region_name"]}
    return {**where, "endpoint_type": "public", "admin": admin}


def _cloud(clouds: Path, name: str) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(clouds.read_text())["clouds"][name]


def loop(side: str) -> Callable[[Turn], Cost]:
    """This file again, as a process that does nothing else, under the peers' interpreter where the side needs that."""

    def run(turn: Turn) -> Cost:
        python = turn.python() if side in OF_PEERS else sys.executable
        command = [str(python), __file__, "--side", side, str(turn.lab.clouds)]
        command += [str(turn.count), str(turn.at), turn.lab.image, turn.lab.flavor]
        keystone = _keystone_seconds(turn.lab)
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=REPOSITORY)
        keystone = _keystone_seconds(turn.lab) - keystone
        if done.returncode != 0:
            raise SystemExit(f"{side}: exit code {done.returncode}")
        seconds, taken, boots = json.loads(done.stdout.splitlines()[-1])
        return Cost(taken / turn.count, taken / turn.count, seconds, keystone, boots)

    return run


def ours(turn: Turn) -> Cost:
    """This suite, by its command line."""
    from tippingpoint.rundir.results import load_run

    def run(count: int, out: str) -> tuple[float, Path]:
        command = [sys.executable, "-m", "tippingpoint", "run", "openstack-boot-delete", f"--out={out}"]
        for setting in (
            f"target.credentials={turn.lab.clouds}",
            "target.cloud=tippingpoint",
            f"target.image={turn.lab.image}",
            f"target.flavor={turn.lab.flavor}",
            f"stages=[{{instances: {count}, hold: 0s}}]",
            f"workload.concurrency={min(turn.at, count)}",
            f"workload.poll_every={round(POLL_S * 1000)}ms",
            "workers=1",
        ):
            command += ["--set", setting]
        return runner_cpu(command, Path(out))

    with tempfile.TemporaryDirectory() as out:
        keystone = _keystone_seconds(turn.lab)
        taken, directory = run(turn.count, out)
        keystone = _keystone_seconds(turn.lab) - keystone
        (stage,) = load_run(directory).stages
        boots = stage.response("boot_server")
        seconds = (stage.hold_begin or stage.begin) - stage.begin
        in_worker = worker_cpu(directory, stage.begin, stage.hold_begin or stage.begin)
    cost = Cost((taken + in_worker) / turn.count, in_worker / turn.count, seconds, keystone)
    cost.percentiles = dict(
        zip((50, 90, 95), (value / 1e6 for value in boots.percentiles([50, 90, 95])), strict=True)
    )
    cost.notes.append(f"{stage.count('total')} of {turn.count} iterations succeeded")
    steps = ("create_server", "await_active", "delete_server")
    medians = [f"{name} {stage.response(name).percentile(50) / 1e6:.2f} s" for name in steps]
    # Every second poll is of members, whom an ordinary user does not ask for: it takes no time.
    medians.append(f"a list {stage.response('poll').percentile(75) / 1e6:.2f} s")
    cost.notes.append(f"medians: {', '.join(medians)}; {stage.count('poll') // 2} lists")
    return cost


SIDES: Mapping[str, Callable[[Turn], Cost]] = {
    "rally": rally,
    "sdk": loop("sdk"),
    "aiohttp": loop("aiohttp"),
    "ours": ours,
}


def _keystone_seconds(lab: OpenstackLab) -> float:
    """CPU-seconds that Keystone's processes have taken, and those of its processes that are gone."""
    pids, seconds = {lab.pids["keystone"]}, 0.0
    told: dict[int, tuple[int, list[str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        told[int(path.parent.name)] = int(fields[1]), fields
    grown = True
    while grown:
        children = {pid for pid, (parent, _) in told.items() if parent in pids} - pids
        grown = bool(children)
        pids |= children
    for pid in pids & told.keys():
        seconds += sum(int(told[pid][1][place]) for place in (11, 12, 13, 14)) / _TICKS
    return seconds


# -- the peers' loops ----------------------------------------------------------------------------------


def boot_with_sdk(
    clouds: Path, count: int, at: int, image: str, flavor: str
) -> tuple[float, float, list[float]]:
    """Seconds, CPU-seconds and the boots' seconds with openstacksdk."""
    os.environ["OS_CLIENT_CONFIG_FILE"] = str(clouds)
    import openstack  # pyright: ignore

    def connect() -> Any:
        connection = openstack.connect(cloud="tippingpoint")
        connection.compute.default_microversion = "2.37"
        return connection

    connections = [connect() for _ in range(at)]
    image_id = connections[0].image.find_image(image).id
    flavor_id = connections[0].compute.find_flavor(flavor).id
    for connection in connections:
        connection.compute.get("/flavors")
    idle = list(connections)

    def one(number: int) -> float:
        connection = idle.pop()
        began = time.monotonic()
        server = connection.compute.create_server(
            name=f"bench-sdk-{number}", image_id=image_id, flavor_id=flavor_id, networks="none"
        )
        connection.compute.wait_for_server(server, interval=POLL_S, wait=_WAIT_S)
        took = time.monotonic() - began
        connection.compute.delete_server(server)
        connection.compute.wait_for_delete(server, interval=POLL_S, wait=_WAIT_S)
        idle.append(connection)
        return took

    began, before = time.monotonic(), cpu_seconds()
    with ThreadPoolExecutor(at) as pool:
        boots = list(pool.map(one, range(count)))
    return time.monotonic() - began, cpu_seconds() - before, boots


def boot_with_aiohttp(
    clouds: Path, count: int, at: int, image: str, flavor: str
) -> tuple[float, float, list[float]]:
    """Seconds, CPU-seconds and the boots' seconds with aiohttp alone."""
    return asyncio.run(_boot_with_aiohttp(_cloud(clouds, "tippingpoint"), count, at, image, flavor))


async def _boot_with_aiohttp(
    cloud: dict[str, Any], count: int, at: int, image: str, flavor: str
) -> tuple[float, float, list[float]]:
    import aiohttp

    auth = cloud["auth"]
    domain = {"name": auth.get("user_domain_name", "Default")}
    user = {"name": auth["username"], "password": auth["password"], "domain": domain}
    identity = {"methods": ["password"], "password": {"user": user}}
    scope = {"project": {"name": auth["project_name"], "domain": domain}}
    async with aiohttp.ClientSession() as session:
        body = {"auth": {"identity": identity, "scope": scope}}
        async with session.post(f"{auth['auth_url']}/auth/tokens", json=body) as answer:
            token, told = answer.headers["X-Subject-Token"], await answer.json()
        ends = {
            service["type"]: endpoint["url"]
            for service in told["token"]["catalog"]
            for endpoint in service["endpoints"]
            if endpoint["interface"] == "public"
        }
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.37"}

        async def get(url: str) -> Any:
            async with session.get(url, headers=headers) as answer:
                return await answer.json() if answer.status == 200 else None

        images = await get(f"{ends['image']}/v2/images?name={image}")
        flavors = await get(f"{ends['compute']}/flavors")
        wanted = {
            "imageRef": images["images"][0]["id"],
            "flavorRef": next(one["id"] for one in flavors["flavors"] if one["name"] == flavor),
            "networks": "none",
        }
        numbers = iter(range(count))
        boots: list[float] = []

        async def slot() -> None:
            for number in numbers:
                began = time.monotonic()
                server = {"server": {"name": f"bench-aiohttp-{number}", **wanted}}
                async with session.post(f"{ends['compute']}/servers", headers=headers, json=server) as answer:
                    where = f"{ends['compute']}/servers/{(await answer.json())['server']['id']}"
                while True:
                    await asyncio.sleep(POLL_S)
                    found = await get(where)
                    if found["server"]["status"] != "BUILD":
                        break
                boots.append(time.monotonic() - began)
                async with session.delete(where, headers=headers):
                    pass
                gone = False
                while not gone:
                    await asyncio.sleep(POLL_S)
                    gone = await get(where) is None

        began, before = time.monotonic(), cpu_seconds()
        await asyncio.gather(*(slot() for _ in range(at)))
        return time.monotonic() - began, cpu_seconds() - before, boots


LOOPS = {"sdk": boot_with_sdk, "aiohttp": boot_with_aiohttp}


def _percentile(points: list[float], percent: int) -> float:
    """Linear between ranks, as Rally's."""
    ordered = sorted(points)
    place = (len(ordered) - 1) * percent / 100
    below = ordered[int(place)]
    return below + (ordered[min(int(place) + 1, len(ordered) - 1)] - below) * (place - int(place))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--at", type=int, default=5)
    parser.add_argument("--computes", type=int, default=4)
    peers = os.environ.get(PEERS)
    able = [side for side in SIDES if peers or side not in OF_PEERS]
    parser.add_argument("--sides", default=",".join(able), help="those to run (%(default)s)")
    options = parser.parse_args()
    from lab.openstack.cloud import OpenstackLab

    if not peers:
        print(f"{' and '.join(OF_PEERS)} are left out: {PEERS} is not set; see --help")
    costs: dict[str, Cost] = {}
    with OpenstackLab(computes=options.computes) as lab:
        networks = lab.admin.get("network", "/v2.0/networks")["networks"]
        for network in networks:  # or Rally's projects had it
            lab.admin.put("network", f"/v2.0/networks/{network['id']}", {"network": {"shared": False}})
        for side in options.sides.split(","):
            costs[side] = SIDES[side](Turn(lab, Path(peers) if peers else None, options.count, options.at))
            print(f"{side} done", file=sys.stderr, flush=True)
        left = lab.count("servers")
    print(
        f"{options.count} boots and deletes, {options.at} at a time, {options.computes} computes, no network"
    )
    print(
        f"{'side':8} {'CPU/iter':>10} {'loop':>10} {'Keystone':>10} {'load':>8} {'boot p50':>9} {'p90':>7} {'p95':>7}"
    )
    for side, cost in costs.items():
        shown = cost.percentiles or {percent: _percentile(cost.boots, percent) for percent in (50, 90, 95)}
        figures = " ".join(f"{shown[percent]:7.2f}" for percent in (50, 90, 95))
        took = f"{1000 * cost.cpu:7.1f} ms {1000 * cost.loop:7.1f} ms {cost.keystone:8.2f} s"
        print(f"{side:8} {took} {cost.seconds:6.1f} s   {figures} s")
        for note in cost.notes:
            print(f"{'':8} {note}")
    if "ours" in costs:
        for side, goal in GOALS.items():
            if side in costs:
                ours_took = costs["ours"].cpu if side == "rally" else costs["ours"].loop
                share = ours_took / costs[side].loop
                print(f"client CPU of ours to {side}: {share:.2f} (goal: at most {goal})")
        if "rally" in costs:
            share = costs["ours"].keystone / costs["rally"].keystone
            print(f"Keystone's CPU of ours to rally: {share:.3f} (goal: at most {KEYSTONE_GOAL})")
    print(f"servers left in the database: {left}")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--side":
        _, _, which, where, many, together, image_name, flavor_name = sys.argv
        print(json.dumps(LOOPS[which](Path(where), int(many), int(together), image_name, flavor_name)))
    else:
        main()
