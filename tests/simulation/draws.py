"""What a seed is: a plan, a target and what goes wrong, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulation.simulated.service import TROUBLES, TROUBLES_OF_KEYS, TROUBLES_OF_THINGS
from tippingpoint.plan.store import MIXED

NAME = "service"
_PLAN: Mapping[str, Any] = {"name": "simulated", "target": {"kind": "simulated", "name": NAME}}


@dataclass(frozen=True)
class Event:
    """What happens to the generator at a moment of the run, in seconds."""

    at: float
    do: str
    """`kill`: a worker is killed; `stand still`: nothing of us runs for `seconds`; `set clock`: the wall clock is set
    by `seconds`; `interrupt`: somebody presses Ctrl-C; `disk full`: for `seconds`, nothing can be written; `slow work`:
    what is done on other threads takes `seconds` from then on; `crash`: the runner is killed, and its workers see that;
    `power cut`: they are killed with it. After `seconds`, somebody resumes the run, or removes what it made where it
    cannot be resumed."""
    seconds: float = 0.0


@dataclass(frozen=True)
class DrawnService:
    """A service, as Service has it."""

    capacity: float
    base: float
    longest_queue: float
    troubles: list[tuple[str, float, float]]
    """Each kind with its begin and end, in seconds of the run."""
    foreign: list[tuple[float, float, float]] | None = None
    """Begin, end and share of what other programs take of its processor; None if its machine does not tell."""


@dataclass(frozen=True)
class Drawn:
    """What a seed is."""

    seed: int
    plan: dict[str, Any]
    service: DrawnService
    events: list[Event]


@dataclass(frozen=True)
class Sizes:
    """How large the runs are that are drawn."""

    capacity: tuple[float, float]
    """The least and the most operations a second, as exponents of ten."""
    renew: tuple[float, ...]
    holds: tuple[float, ...]
    steps: int
    """The most stages of a list."""
    over: float
    minutes: tuple[int, ...]
    """How long a search may take."""
    workers: tuple[int, ...]
    units: tuple[int, ...]


LARGE = Sizes((1.0, 2.1), (1.0, 2.0, 5.0), (4, 10, 25), 6, 2.0, (3, 10), (1, 2, 3), (2, 2, 3, 3, 4, 6, 12))
SMALL = Sizes((0.7, 1.6), (1.0, 1.0, 2.0), (2, 3, 6), 3, 1.0, (1, 2), (1, 1, 1, 2), (2, 2, 2, 2, 3, 4))
"""Runs in which as much happens, in a fifth of the work: what CI plays."""


def draw(seed: int, sizes: Sizes = SMALL) -> Drawn:
    """Draw a run. In most, anything may go wrong at any time; some are about one thing only."""
    chance = random.Random(seed)
    about = chance.random()
    if about < 0.05:
        return _overload(seed, chance)
    if about < 0.1:
        return _standstills(seed, chance)
    if about < 0.13:
        return _search(seed, chance, sizes)
    if about < 0.2:
        return _things(seed, chance)
    if about < 0.25:
        return _keys(seed, chance)
    return _anything(seed, chance, sizes)


def _overload(seed: int, chance: random.Random) -> Drawn:
    """Draw a long load, of which a threshold may end the run; nothing else goes wrong."""
    capacity = 10 ** chance.uniform(0.9, 1.4)
    allowed = chance.choice([0.2, 1.0])
    plan = {
        **_PLAN,
        "workload": {
            "units": chance.choice([1, 1, 2]),
            "claim_time": f"{chance.choice([3, 10, 30])}s",
            "renew_time": "1s",
            "timeout": f"{chance.choice([1, 5])}s",
        },
        "workers": chance.choice([1, 2]),
        "thresholds": [{"operation": "extend", "p99": f"{allowed:g}s", "abort": True}],
        "stages": [{"leases": round(capacity * chance.choice([0.3, 1.5, 3])), "over": "1s", "hold": "40s"}],
    }
    return Drawn(seed, plan, DrawnService(capacity, 0.002, chance.choice([1e9, 5.0]), []), [])


def _standstills(seed: int, chance: random.Random) -> Drawn:
    """Draw a light load of a target that is far away: nothing goes wrong but that the generator stands still."""
    load, base = chance.randint(8, 16), chance.uniform(0.1, 0.3)
    capacity = load * chance.uniform(10, 20)
    stands_still = [chance.uniform(0.3, 2.5) for _ in range(chance.choice([1, 2, 3]))]
    # What is sent at once after a standstill queues up on the target.
    allowed = 1.5 * base + 10 / capacity + sum(stands_still) * load / capacity
    plan = {
        **_PLAN,
        "workload": {"units": 1, "claim_time": "10s", "renew_time": "1s", "timeout": "1s"},
        "workers": chance.choice([1, 2]),
        "thresholds": [
            {"operation": "extend", "p99": f"{1000 * allowed:.0f}ms", "error_rate": 0.01, "lost_rate": 0}
        ],
        "stages": [{"leases": load, "over": "1s", "hold": "12s"}],
    }
    events = [Event(chance.uniform(1, 12), "stand still", seconds) for seconds in stands_still]
    return Drawn(
        seed, plan, DrawnService(capacity, base, 1e9, []), sorted(events, key=lambda event: event.at)
    )


def _search(seed: int, chance: random.Random, sizes: Sizes) -> Drawn:
    """Draw a search for the limit of a queue of which nothing goes wrong."""
    capacity, base, renew = 10 ** chance.uniform(*sizes.capacity), 0.002, chance.choice(sizes.renew)
    allowed = base + chance.choice([3, 5, 8]) / capacity
    plan = {
        **_PLAN,
        "workload": {"units": 1, "claim_time": "60s", "renew_time": f"{renew:g}s", "timeout": "5s"},
        "workers": 1,
        "thresholds": [{"operation": "extend", chance.choice(["p90", "p99"]): f"{1000 * allowed:.0f}ms"}],
        "find": {
            "start": max(1, round(capacity * renew * chance.choice([0.1, 0.4, 0.8]))),
            "limit": max(2, round(capacity * renew * 2)),
            "over": f"{renew:g}s",
            "hold": f"{2 * sizes.holds[-1]:g}s",
            "within": f"{3 * sizes.minutes[-1]}m",
            "resolution": 0.3,
        },
    }
    return Drawn(seed, plan, DrawnService(capacity, base, 1e9, []), [])


def _things(seed: int, chance: random.Random) -> Drawn:
    """Draw a run that makes things, lists them, and makes those again that vanish."""
    capacity = 10 ** chance.uniform(0.7, 1.6)
    pace = chance.choice([{"rate": round(capacity / 4, 1)}, {"concurrency": 4}, {"batch": 3}])
    cycle = chance.random() < 0.3
    sizes = [chance.randint(1, 12) for _ in range(chance.choice([1, 1, 2]))]
    plan = {
        **_PLAN,
        "workload": {
            "kind": "spawn",
            "until": chance.choice(["created", "started"]),
            "cycle": cycle,
            "observe_every": "0s",
            "timeout": f"{chance.choice([1, 5])}s",
            **pace,
        },
        "workers": chance.choice([1, 2]),
        "thresholds": [{"operation": "create", "p90": f"{chance.choice([50, 500])}ms", "error_rate": 0.1}],
        "stages": [
            {"groups": chance.choice([1, 2]), "instances": size, "hold": f"{chance.choice([0, 3, 6])}s"}
            for size in (sizes if cycle else sorted(set(sizes)))
        ],
    }
    troubles: list[tuple[str, float, float]] = []
    while chance.random() < 0.4:
        begin = chance.uniform(0, 15)
        troubles.append((chance.choice(TROUBLES_OF_THINGS), begin, begin + chance.uniform(1, 20)))
    events: list[Event] = []
    while chance.random() < 0.3:
        do = chance.choice(["kill", "stand still", "interrupt", "crash", "power cut", "disk full"])
        events.append(Event(chance.uniform(0, 15), do, chance.uniform(0.05, 12)))
    service = DrawnService(capacity, 0.002, 1e9, troubles)
    return Drawn(seed, plan, service, sorted(events, key=lambda event: event.at))


def _keys(seed: int, chance: random.Random) -> Drawn:
    """Draw a run that writes, reads and watches keys, and lets leases run out."""
    capacity = 10 ** chance.uniform(1.3, 2.0)
    mix = {name: chance.choice([0, 1, 1, 3]) for name in MIXED}
    names = [name for name in ("put", "get", "txn") if mix[name]] or ["put-new"]
    mix["put-new"] += not any(mix[name] for name in ("put", "get", "txn"))
    watchers, hold = chance.choice([0, 1, 4]), chance.choice([3, 6])
    loads = sorted({round(capacity * chance.choice([0.1, 0.3, 0.6, 1.5]), 1) for _ in range(2)})
    plan: dict[str, Any] = {
        **_PLAN,
        "workload": {
            "kind": "store",
            "mix": mix,
            "prefixes": chance.choice([2, 3]),
            "bytes": 8,
            "limit": chance.choice([0, 3]),
            "pages": chance.choice([0, 2]),
            "serializable": chance.choice([0.0, 0.5]),
            "lease_ttl": f"{chance.choice([1, 2])}s",
            "relist": chance.random() < 0.3,
            "timeout": f"{chance.choice([1, 5])}s",
        },
        "workers": chance.choice([1, 2]),
        "thresholds": [{"operation": chance.choice(names), "p99": f"{chance.choice([50, 500])}ms"}],
        "stages": [
            {"operations": load, "watchers": watchers, "keys": 20, "over": "1s", "hold": f"{hold}s"}
            | ({"expiring": 2} if chance.random() < 0.3 else {})
            for load in loads
        ],
    }
    if watchers and chance.random() < 0.3:
        plan["faults"] = [{"do": "drop-claims", "stage": 1, "at": "1s"}]
    if "expiring" in plan["stages"][0]:
        plan["stages"] = plan["stages"][:1]
    else:
        for stage in plan["stages"]:
            stage.pop("expiring", None)
    troubles: list[tuple[str, float, float]] = []
    while chance.random() < 0.4:
        begin = chance.uniform(0, 15)
        troubles.append((chance.choice(TROUBLES_OF_KEYS), begin, begin + chance.uniform(1, 10)))
    events: list[Event] = []
    while chance.random() < 0.3:
        do = chance.choice(["kill", "stand still", "interrupt", "crash", "power cut", "disk full"])
        events.append(Event(chance.uniform(0, 15), do, chance.uniform(0.05, 6)))
    service = DrawnService(capacity, 0.002, 1e9, troubles)
    return Drawn(seed, plan, service, sorted(events, key=lambda event: event.at))


def _anything(seed: int, chance: random.Random, sizes: Sizes) -> Drawn:
    """Draw a run. A third of them are searches; half have nothing go wrong with the generator."""
    capacity = 10 ** chance.uniform(*sizes.capacity)
    renew = chance.choice(sizes.renew)
    workload = {
        "units": chance.choice([1, 1, 2, 3]),
        "claim_time": f"{renew * chance.choice([2, 5, 10]):g}s",
        "renew_time": f"{renew:g}s",
        "timeout": f"{chance.choice([1, 5, 20])}s",
    }
    limit = capacity * renew
    plan: dict[str, Any] = {
        **_PLAN,
        "workload": workload,
        "workers": chance.choice(sizes.workers),
        "thresholds": _thresholds(chance),
    }
    hold = chance.choice(sizes.holds)
    over = f"{sizes.over:g}s"
    if chance.random() < 0.3:
        start = max(1, round(limit * chance.choice([0.02, 0.2, 0.7, 2.0])))
        plan["find"] = {
            "start": start,
            "limit": max(start, round(limit * chance.choice([0.5, 4]))),
            "over": over,
            "hold": f"{max(hold, renew):g}s",
            "within": f"{chance.choice(sizes.minutes)}m",
            "resolution": chance.choice([0.1, 0.3]),
        }
        lasts = 100.0 * sizes.minutes[0]
    else:
        loads = [max(1, round(limit * share)) for share in _ladder(chance, sizes.steps)]
        plan["stages"] = [{"leases": size, "over": over, "hold": f"{hold}s"} for size in loads]
        if chance.random() < 0.3:
            plan["after"] = "recover"
        lasts = len(loads) * (hold + 3.0)
        if chance.random() < 0.2:
            stage = chance.randint(1, len(loads))
            plan["faults"] = [
                {"do": "drop-claims", "stage": stage, "at": f"{hold * chance.uniform(0, 0.9):.1f}s"}
            ]
    troubles: list[tuple[str, float, float]] = []
    while chance.random() < 0.3:
        begin = chance.uniform(0, lasts)
        troubles.append((chance.choice(TROUBLES), begin, begin + chance.uniform(0.2, 40)))
    events: list[Event] = []
    if chance.random() < 0.5:
        for _ in range(chance.choice([1, 1, 2, 4])):
            do = chance.choice(
                [
                    "kill",
                    "stand still",
                    "stand still",
                    "set clock",
                    "interrupt",
                    "disk full",
                    "crash",
                    "power cut",
                ]
            )
            seconds = (
                chance.choice([-3600.0, -1.0, 2.0, 3600.0]) if do == "set clock" else chance.uniform(0.05, 12)
            )
            events.append(Event(chance.uniform(0, lasts), do, seconds))
    base, longest_queue = chance.choice([0.0005, 0.002, 0.02]), chance.choice([1e9, 1e9, 0.5, 5.0])
    foreign: list[tuple[float, float, float]] | None = None
    if chance.random() < 0.2:
        begin = chance.uniform(0, lasts)
        foreign = [(begin, begin + chance.choice([5.0, 40.0, 1e9]), chance.uniform(0.02, 0.8))]
    service = DrawnService(capacity, base, longest_queue, troubles, foreign)
    return Drawn(seed, plan, service, sorted(events, key=lambda event: event.at))


def _thresholds(chance: random.Random) -> list[dict[str, Any]]:
    ms = chance.choice([10, 50, 200, 1000])
    found: list[dict[str, Any]] = [{"operation": "extend", chance.choice(["p50", "p90", "p99"]): f"{ms}ms"}]
    if chance.random() < 0.6:
        found[0] |= {"error_rate": 0.01, "lost_rate": 0}
    if chance.random() < 0.3:
        found.append({"operation": "claim", "p99": "1s"})
    if chance.random() < 0.2:
        found.append({"operation": "extend", "p99": "2s", "abort": True})
    return found


def _ladder(chance: random.Random, most: int) -> list[float]:
    begin = chance.choice([0.02, 0.1, 0.3])
    steps = chance.randint(1, most)
    factor = chance.choice([1.0, 1.5, 2.0, 4.0])
    return [min(4.0, begin * factor**step) for step in range(steps)]
