"""Digests: what a unit's part came to, within a databag's room, read back by nobody who trusts it."""

from __future__ import annotations

import base64
import lzma
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.digest.parts_of_units import RUN, write_part
from tests.unit.made.lxd_runs import Fill, write_fill
from tests.unit.made.openstack_runs import computes, write_cycles
from tests.unit.made.synthetic import MadeStage
from tippingpoint.digest.packing import groups, pack_counts, pack_numbers
from tippingpoint.digest.unit_digest import LEAST, Digest, make_digest, read_digest
from tippingpoint.errors import UserError
from tippingpoint.rundir.histogram import Histogram, slots_of
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.rundir.recorder import HIGHEST_US
from tippingpoint.rundir.results import load_run

STAGES = [MadeStage(500), MadeStage(1000), MadeStage(2000)]
LONG = [MadeStage(size, over=5, hold=60, extends_per_second=400) for size in (500, 1000, 2000, 4000, 8000)]


@pytest.fixture(scope="module")
def long_part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part that measured more than fits into a digest."""
    return write_part(tmp_path_factory.mktemp("long"), 0, LONG)


def histogram(digest: Digest, phase: int, tag: str) -> Histogram:
    found = Histogram()
    for measured in digest.measured:
        if (measured.phase, measured.tag) == (phase, tag):
            found.counts[measured.slots] += measured.counts
    return found


def test_a_short_part_is_told_exactly_by_phase_and_by_second(tmp_path: Path) -> None:
    # given a part of two workers
    part = write_part(tmp_path, 3, STAGES, workers=2)
    run = load_run(part)
    # when its digest is made and read
    digest = read_digest(make_digest(part))
    # then it has what all workers recorded, phase by phase
    head = digest.head
    assert (head.run, head.unit, head.less) == (f"{RUN}.3", "load-claimer/3", [])
    assert [(p.stage, p.phase) for p in head.phases if p.length] == [
        (number, phase) for number in (1, 2, 3) for phase in ("begin", "hold")
    ]
    for place, phase in enumerate(head.phases):
        if phase.phase == "hold":
            stage = run.stage(phase.stage)
            for tag, held in stage.held.items():
                assert (histogram(digest, place, tag).counts == held.counts).all()
            assert phase.gauges == pytest.approx(stage.gauges, abs=0.001)
    # and how that came over time
    assert head.width == 1
    for measured in digest.measured:
        assert measured.amounts.sum() == measured.counts.sum()
        assert measured.amounts.shape[0] == head.phases[measured.phase].intervals(1)
    extends = sum(m.amounts.sum() for m in digest.measured if m.tag == "extend.ok")
    assert extends == run.curves["extend.ok"].count.sum()


def test_ticks_are_the_sum_of_what_workers_held_and_the_worst_of_their_health(tmp_path: Path) -> None:
    part = write_part(tmp_path, 0, STAGES, workers=2)
    gauges = load_run(part).gauges
    digest = read_digest(make_digest(part))
    ours = dict(zip(digest.moments.tolist(), digest.gauges.tolist(), strict=True))
    for t, held, cpu in zip(gauges.t, gauges.held, gauges.cpu, strict=True):
        assert ours[int(t * 1000)][0] == held
        assert ours[int(t * 1000)][4] == pytest.approx(cpu, abs=0.001)


def test_what_does_not_fit_exactly_is_told_to_a_known_share_and_the_digest_says_so(long_part: Path) -> None:
    run = load_run(long_part)
    # when its digest is made
    text = make_digest(long_part)
    digest = read_digest(text)
    # then it fits and says how well it knows what it says
    assert len(text) <= 40_000
    assert 5 <= digest.head.bits < 10
    assert any("latencies are accurate to" in line for line in digest.head.less)
    # and percentiles are that good, the largest and the smallest exact, no sample lost
    for place, phase in enumerate(digest.head.phases):
        if phase.phase == "hold":
            exact = run.stage(phase.stage).held["extend.ok"]
            told = histogram(digest, place, "extend.ok")
            assert (told.total, told.max, told.min) == (exact.total, exact.max, exact.min)
            for percentile in (50, 90, 99, 99.9):
                assert told.percentile(percentile) == pytest.approx(
                    exact.percentile(percentile), rel=2**-digest.head.bits + 0.001
                )


def test_all_that_is_timed_of_servers_is_in_it(tmp_path: Path) -> None:
    """Given a part that boots and deletes servers on an OpenStack, then no operation is missing."""
    part = write_cycles(tmp_path / "part", 12)
    digest = read_digest(make_digest(part))
    assert digest.head.less == []
    assert {measured.tag for measured in digest.measured} >= {
        "create_server.ok", "await_active.ok", "boot_server.ok", "delete_server.ok", "total.ok"
    }  # fmt: skip


def test_where_servers_landed_is_told_to_the_last_one(tmp_path: Path) -> None:
    """Given more words of where servers landed than there is room for, each of which says all that the one before said,
    then the last one is told."""
    hosts = computes(40)
    part = write_cycles(tmp_path / "part", 2000, hosts=hosts)
    told = [event for event in read_digest(make_digest(part)).head.events if event["event"] == "landed"]
    assert told[-1]["counts"] == dict.fromkeys(hosts, 50)


@pytest.mark.parametrize("limit", [LEAST, 6_000, 10_000, 20_000, 80_000])
def test_a_digest_always_fits(long_part: Path, limit: int) -> None:
    text = make_digest(long_part, limit)
    assert len(text) <= limit
    digest = read_digest(text)
    assert digest.head.run == f"{RUN}.0"
    assert bool(digest.head.less) == (limit < 80_000)


def test_less_room_never_tells_more_exactly(long_part: Path) -> None:
    bits = [
        read_digest(make_digest(long_part, limit)).head.bits
        for limit in (8_000, 16_000, 32_000, 64_000, 128_000)
    ]
    assert bits == sorted(bits)
    assert bits[-1] == 10


def test_a_part_of_a_thousand_stages_fits_and_says_which_it_leaves_out(tmp_path: Path) -> None:
    Manifest(
        id=f"{RUN}.0", title="long", target=TargetEntry(kind="etcd"), started=1.7e9, status="complete"
    ).save(tmp_path)
    journal = Journal(tmp_path, "0", 1.7e9)
    random = np.random.default_rng(1)
    for number in range(1, 1001):
        t = 4.0 * number
        for phase, begin in (("begin", t), ("hold", t + 2)):
            journal.events.write(begin, "stage", stage=number, size=number, kind="ramp", phase=phase)
            samples = random.lognormal(8, 1, (3, 40))
            tags = ("claim.ok", "extend.ok", "extend.ok.service")
            journal.interval(
                begin,
                begin + 2,
                {tag: Histogram.of(np.rint(v)) for tag, v in zip(tags, samples, strict=True)},
            )
    journal.events.write(t + 4, "stage", stage=1000, size=1000, kind="ramp", phase="end")
    journal.close(tmp_path)
    text = make_digest(tmp_path)
    assert len(text) <= 40_000
    head = read_digest(text).head
    (left_out,) = [line for line in head.less if "stages before" in line]
    first = int(left_out.split()[4])
    assert {phase.stage for phase in head.phases} == set(range(first, 1001))


def test_events_are_kept_singly_up_to_a_bound_and_counted_beyond(tmp_path: Path) -> None:
    # given a part with a fault, a flood of different errors and ten thousand lost leases
    part = write_part(
        tmp_path, 0, STAGES, events=[{"t": 5.0, "event": "fault", "do": "kill", "member": "m2"}]
    )
    with open(part / "worker-h-0.jsonl", "ab") as log:
        for second in range(20):
            for number in range(500):
                log.write(
                    orjson.dumps({"t": second + 0.5, "event": "lost", "lease": number, "unit": 1, "count": 1})
                )
                log.write(b"\n")
            for number in range(50):
                error = {
                    "operation": "claim",
                    "outcome": "error",
                    "error": f"failure {number} " * 30,
                    "count": 3,
                }
                log.write(orjson.dumps({"t": second + 0.5, "event": "error", **error}) + b"\n")
    # when its digest is made
    digest = read_digest(make_digest(part))
    # then what was lost is counted, the first few one by one, and the fault is there
    kinds = [event["event"] for event in digest.head.events]
    assert kinds.count("fault") == 1
    lost = [event for event in digest.head.events if event["event"] == "lost"]
    assert sum(event["count"] for event in lost) == 10_000
    assert len([event for event in lost if "lease" in event]) == 10
    assert (
        sum(e.get("count", 1) for e in digest.head.events if e["event"] == "error") + _left_out(digest)
        == 3000
    )
    assert max(len(str(event.get("error", ""))) for event in digest.head.events) <= 200


def _left_out(digest: Digest) -> int:
    return sum(int(line.split()[0]) for line in digest.head.less if "single events" in line)


def test_of_a_fill_the_last_placements_of_each_phase_are_kept(tmp_path: Path) -> None:
    part = write_fill(tmp_path / "fill", [Fill(400, hold=300), Fill(800, hold=300, lose="lxd2")], workers=2)
    digest = read_digest(make_digest(part, 12_000))
    kinds = {event["event"] for event in digest.head.events}
    assert {"member", "leader", "lost", "placed", "repaired"} <= kinds
    final = [event for event in load_run(part).events if event["event"] == "placed"]
    for worker in ("0", "1"):
        ours = [
            event for event in digest.head.events if event["event"] == "placed" and event["worker"] == worker
        ]
        assert ours[-1]["counts"] == [e for e in final if e["worker"] == worker][-1]["counts"]


def test_a_cut_part_says_what_it_has(tmp_path: Path) -> None:
    part = write_part(
        tmp_path, 0, [*STAGES[:2], MadeStage(2000, finished=False)], status="cut", reason="it went away"
    )
    with open(part / "worker-h-0.hlog", "a") as log:
        log.write("Tag=extend.ok,30.000,1.0")
    head = read_digest(make_digest(part)).head
    assert (head.status, head.reason) == ("cut", "it went away")
    assert head.phases[-1].phase == "hold"
    assert head.notes == ["worker h-0: 1 damaged line left out"]


def test_a_part_that_measured_nothing_has_a_digest(tmp_path: Path) -> None:
    Manifest(
        id=f"{RUN}.0",
        title="x",
        target=TargetEntry(kind="etcd"),
        started=1.7e9,
        status="failed",
        reason="refused",
    ).save(tmp_path)
    Events(tmp_path / "events.jsonl").close(tmp_path)
    digest = read_digest(make_digest(tmp_path))
    assert (digest.head.status, digest.head.reason, digest.measured) == ("failed", "refused", [])


def test_what_is_no_run_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run: "):
        make_digest(tmp_path)


# ---- digests of others ----------------------------------------------------------------------------


def packed(head: dict[str, Any], numbers: bytes = b"") -> str:
    told = orjson.dumps(head)
    return base64.b64encode(lzma.compress(struct.pack(">I", len(told)) + told + numbers)).decode()


HEAD: dict[str, Any] = {
    "version": 1,
    "run": f"{RUN}.0",
    "unit": "load-claimer/0",
    "target": "etcd",
    "target_version": "",
    "members": [],
    "controller": "",
    "status": "complete",
    "reason": "",
    "started": 1.79e9,
    "workers": 1,
    "cut": 0,
    "cores": 1,
    "notes": [],
    "less": [],
    "bits": 10,
    "width": 1,
    "phases": [{"stage": 1, "size": 5, "kind": "ramp", "phase": "begin", "begin": 0, "length": 1000}],
    "tags": ["claim.ok"],
    "events": [],
    "histograms": 0,
    "ticks": 0,
}
TWO_PHASES = [
    {"stage": 1, "size": 5, "phase": "hold", "begin": 0, "length": 1000},
    {"stage": 1, "size": 5, "phase": "begin", "begin": 1000, "length": 1000},
]


def test_the_head_that_others_are_made_of_here_is_one() -> None:
    assert read_digest(packed(HEAD)).head.run == f"{RUN}.0"
    one = read_digest(packed({**HEAD, "histograms": 1}, bytes([0, 0, 1, 0, 0, 8])))
    assert [(m.slots.tolist(), m.counts.tolist()) for m in one.measured] == [([0], [4])]


def full(count: int, bits: int, highest: int) -> str:
    """A small text that says: so many histograms, each filled from the first slot to this one."""
    words = pack_counts(np.arange(highest + 1), np.full(highest + 1, 1 << 10))
    phases = [{"stage": n + 1, "size": 5, "phase": "hold", "begin": n, "length": 1} for n in range(count)]
    lowest = np.zeros(count, dtype=np.int64)
    index = np.stack((lowest, np.arange(count), np.full(count, words.size), lowest, lowest)).ravel()
    numbers = pack_numbers(np.concatenate((index, *[words] * count)))
    return packed({**HEAD, "bits": bits, "width": 0, "phases": phases, "histograms": count}, numbers)


def test_a_value_of_more_than_an_hour_is_refused() -> None:
    hour = int(slots_of(HIGHEST_US))
    assert read_digest(full(1, 10, hour)).measured[0].slots[-1] == hour
    with pytest.raises(UserError, match="a value of more than an hour"):
        read_digest(full(1, 10, hour + 1))


def coarse(count: int) -> str:
    """Some kilobytes that say: so many histograms, each spread over all that one can have."""
    hour = int(slots_of(HIGHEST_US))
    places = np.arange(groups(0)[hour] + 1)
    words = pack_counts(places, np.full(places.size, 1 << 20))
    phases = [{"stage": n + 1, "size": 5, "phase": "hold", "begin": n, "length": 1} for n in range(count)]
    none = np.zeros(count, dtype=np.int64)
    index = np.stack((none, np.arange(count), np.full(count, words.size), none, np.full(count, hour))).ravel()
    numbers = pack_numbers(np.concatenate((index, *[words] * count)))
    return packed({**HEAD, "bits": 0, "width": 0, "phases": phases, "histograms": count}, numbers)


@given(st.integers(1, 700))
@settings(max_examples=12, deadline=None)
def test_a_digest_unpacks_to_a_bounded_size(count: int) -> None:
    digest, refusal = read_or_refused(coarse(count))
    if digest is None:
        assert "more values than a unit measures" in refusal
    else:
        assert sum(each.slots.size for each in digest.measured) <= 1 << 22


def test_a_small_text_of_sixteen_million_slots_is_refused() -> None:
    text = coarse(700)
    assert len(text) < 40_000
    with pytest.raises(UserError, match="more values than a unit measures"):
        read_digest(text)


BOMB = base64.b64encode(lzma.compress(bytes(20_000_000), preset=1)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "é",
        "A" * 5_000_000,
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(lzma.compress(b"")).decode(),
        base64.b64encode(lzma.compress(b"\xff\xff\xff\xff{}")).decode(),
        BOMB,
        packed([]),  # type: ignore[arg-type]
        packed({}),
        packed({**HEAD, "version": 2}),
        packed({**HEAD, "started": 1e300}),
        packed({**HEAD, "started": None}),
        packed({**HEAD, "bits": 11}),
        packed({**HEAD, "width": 10**9}),
        packed({**HEAD, "phases": TWO_PHASES}),
        packed({**HEAD, "phases": [{**HEAD["phases"][0], "length": 10**15}]}),
        packed({**HEAD, "phases": [{**HEAD["phases"][0], "stage": 0}]}),
        packed({**HEAD, "phases": [{**HEAD["phases"][0], "gauges": {"held": 1}}]}),
        packed({**HEAD, "tags": ["claim.ok\n,,"]}),
        packed({**HEAD, "events": [{"t": 1}]}),
        packed({**HEAD, "events": [{"t": -1, "event": "lost"}]}),
        packed({**HEAD, "events": [{"t": 1, "event": "lost", "held_for": "long"}]}),
        packed({**HEAD, "events": [{"t": 1, "event": "fault", "do": ["kill"]}]}),
        packed({**HEAD, "events": [{"t": 1, "event": "retry", "count": 1e300}]}),
        packed({**HEAD, "events": [{"t": 1, "event": "placed", "counts": {"m": [1]}}]}),
        packed({**HEAD, "histograms": 10**9}),
        packed({**HEAD, "ticks": 2**31 - 1}),
        packed(HEAD, b"\x01"),
        packed(HEAD, b"\xff"),
        packed(HEAD, b"\xff" * 9 + b"\x01"),
        packed({**HEAD, "histograms": 1}, bytes([1, 0, 1, 0, 0, 8])),  # no such tag
        packed({**HEAD, "histograms": 1}, bytes([0, 1, 1, 0, 0, 8])),  # no such phase
        packed({**HEAD, "histograms": 1}, bytes([0, 0, 0, 0, 0])),  # empty
        packed({**HEAD, "histograms": 1}, bytes([0, 0, 1, 0, 0, 0])),  # a count of nothing
        packed({**HEAD, "histograms": 1, "bits": 5}, bytes([0, 0, 1, 7, 3, 8])),  # ends the wrong way round
        packed({**HEAD, "histograms": 1, "bits": 5}, bytes([0, 0, 1, 0, 9, 2])),  # one sample at two ends
        packed({**HEAD, "ticks": 1}, bytes([1, 0, 0, 0, 0, 0, 0])),  # before the beginning
    ],
)
def test_garbage_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="digest: ") as refused:
        read_digest(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "bits": st.integers(0, 10),
            "width": st.integers(0, 3600),
            "histograms": st.integers(0, 4),
            "ticks": st.integers(0, 3),
            "length": st.integers(0, 10**12),
        }
    ),
    st.binary(max_size=200),
)
def test_any_numbers_make_a_digest_or_a_refusal(fields: dict[str, Any], numbers: bytes) -> None:
    length = fields.pop("length")
    head = {**HEAD, **fields, "phases": [{**HEAD["phases"][0], "length": length}]}
    digest, refusal = read_or_refused(packed(head, numbers))
    assert "\n" not in refusal
    assert digest is None or all((m.counts > 0).all() and (m.amounts >= 0).all() for m in digest.measured)


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_digest_that_was_changed_is_another_one_or_none(
    changes: Sequence[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = _once(tmp_path_factory)
    raw = bytearray(lzma.decompress(base64.b64decode(text)))
    for place, value in changes:
        raw[place % len(raw)] = value
    _, refusal = read_or_refused(base64.b64encode(lzma.compress(bytes(raw))).decode())
    assert "\n" not in refusal


def read_or_refused(text: str) -> tuple[Digest | None, str]:
    try:
        return read_digest(text), ""
    except UserError as refused:
        return None, str(refused)


_MADE: list[str] = []


def _once(factory: pytest.TempPathFactory) -> str:
    if not _MADE:
        _MADE.append(make_digest(write_part(factory.mktemp("part"), 0, STAGES[:2]), 8_000))
    return _MADE[0]
