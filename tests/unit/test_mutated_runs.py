"""Run directories with any field of any file missing or replaced open and report, or are refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.analysis.analyse import analyse
from tippingpoint.errors import UserError
from tippingpoint.report import RunFormat, write_report
from tippingpoint.rundir.journal import read_events
from tippingpoint.rundir.results import load_run

KEPT = Path(__file__).parents[1] / "data" / "kept-runs"
RUNS = ("etcd", "etcd-search", "juju-agent", "juju-growth", "lxd-cut", "openstack", "two-units-collected")
MISSING = object()
JUNK: list[Any] = [
    *(MISSING, None, {}, [], "", "x", True, -1, 0, 1.5, 10**30, 1e308, -1e308, float("inf"), float("nan")),
    *("\ud800", {"a": 1}, [1], [[1, "x"], {}], "a" * 300),
]
Keys = tuple[str | int, ...]


def keys_of(value: Any, at: Keys = ()) -> Iterator[Keys]:
    """Where everything in a JSON document is."""
    if at:
        yield at
    within = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in within:
        yield from keys_of(inside, (*at, key))


def places_of(run: str) -> list[tuple[str, str, int, Keys]]:
    """Each field of a run's files once: the run, the file, the line, and where it is in there."""
    found: dict[tuple[Any, ...], tuple[str, str, int, Keys]] = {}
    for path in sorted((KEPT / run).glob("*.json*")):
        whole = path.suffix == ".json"
        lines = [path.read_text()] if whole else path.read_text().splitlines()
        for number, document in enumerate(map(json.loads, lines)):
            for keys in keys_of(document):
                names = tuple(key for key in keys if isinstance(key, str))
                found.setdefault((path.name, document.get("event"), *names), (run, path.name, number, keys))
    return list(found.values())


PLACES = [place for run in RUNS for place in places_of(run)]


def mutated(directory: Path, file: str, line: int, keys: Keys, junk: Any) -> None:
    path = directory / file
    lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
    document = json.loads(lines[line])
    inside = document
    for key in keys[:-1]:
        inside = inside[key]
    if junk is MISSING:
        del inside[keys[-1]]
    else:
        inside[keys[-1]] = junk
    lines[line] = json.dumps(document)
    path.write_text("\n".join(lines) + "\n")


def report_all(directory: Path) -> str:
    """Write every format; returns why that is refused, or an empty text."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in JSON")

    try:
        found = analyse(load_run(directory))
        for form in get_args(RunFormat):
            text = write_report(found, form)
            assert text.encode()
            if form == "json":
                json.loads(text, parse_constant=refuse)
    except UserError as refused:
        return str(refused)
    return ""


def try_mutation(run: str, file: str, line: int, keys: Keys, junk: Any) -> None:
    with TemporaryDirectory() as temporary:
        directory = Path(temporary) / run
        shutil.copytree(KEPT / run, directory)
        mutated(directory, file, line, keys, junk)
        assert "\n" not in report_all(directory)


@pytest.mark.parametrize(
    ("run", "file", "event", "field", "junk"),
    [
        ("etcd-search", "events.jsonl", "found", "ended", MISSING),
        ("etcd-search", "events.jsonl", "found", "limit", {}),
        ("etcd-search", "events.jsonl", "found", "low", "x"),
        ("etcd-search", "events.jsonl", "probe", "stage", MISSING),
        ("etcd-search", "events.jsonl", "probe", "margins", MISSING),
        ("etcd-search", "events.jsonl", "probe", "margins", "x"),
        ("etcd-search", "events.jsonl", "probe", "broken", 1.5),
        ("etcd-search", "worker-0.jsonl", "tick", "samples", 1e308),
        ("etcd-search", "worker-0.jsonl", "tick", "cpu", float("inf")),
        ("etcd-search", "worker-0.jsonl", "stage", "size", 10**30),
        ("openstack", "events.jsonl", "fault", "do", {}),
        ("openstack", "events.jsonl", "fault", "do", [1]),
        ("etcd-search", "manifest.json", "", "ended", 1e308),
        ("etcd-search", "manifest.json", "", "started", float("nan")),
        (
            "etcd-search",
            "manifest.json",
            "",
            "host",
            {"cores": 10**30, "system": "", "python": "", "tippingpoint": ""},
        ),
        ("etcd", "resources.json", "", "step", 0),
        ("etcd", "resources.json", "", "figures", "x"),
    ],
)
def test_a_field_that_is_not_what_it_must_be(run: str, file: str, event: str, field: str, junk: Any) -> None:
    place = next(
        (line, keys)
        for _, name, line, keys in [*places_of(run)]
        if name == file
        and keys[0] == field
        and len(keys) == 1
        and (not event or json.loads((KEPT / run / file).read_text().splitlines()[line])["event"] == event)
    )
    try_mutation(run, file, *place, junk)


@settings(max_examples=50, deadline=None)
@given(place=st.sampled_from(PLACES), junk=st.sampled_from(JUNK))
def test_any_field_of_any_run(place: tuple[str, str, int, Keys], junk: Any) -> None:
    try_mutation(*place, junk)


@pytest.mark.parametrize(
    "fields",
    [
        {"event": "recovering"},
        {"event": "recovering", "stage": 1, "size": "x", "held": None, "broken": 1, "before": None},
        {"event": "recovering", "skipped": 1},
        {"event": "test"},
        {"event": "test", "test": "x", "outcome": "passed", "seconds": None},
        {"event": "test", "test": "x", "outcome": "passed", "seconds": 1, "steps": [1]},
        {"event": "test", "test": "x", "outcome": "passed", "seconds": 1, "felt": {"dcs": 1}},
        {"event": "node-load"},
        {"event": "node-load", "loads": {"a": {"load": [1]}}},
        {"event": "share", "index": "x", "of": 2},
        {"event": "controller", "status": "gone"},
        {"event": "left-to-expire", "leases": "many"},
        {"event": "anything", "at": {"depth": [1e300]}},
    ],
)
def test_an_event_that_nobody_can_read_is_damage(fields: dict[str, Any], tmp_path: Path) -> None:
    # given a log with an event that lacks what its readers need
    log = tmp_path / "events.jsonl"
    log.write_text(json.dumps({"t": 1.0, "event": "note", "text": "sound"}) + "\n")
    with log.open("a") as file:
        file.write(json.dumps({"t": 2.0, **fields}) + "\n")
    # when it is read, then the event is left out, and counted
    read = read_events(log)
    assert [event["event"] for event in read.events] == ["note"]
    assert read.damaged == 1
