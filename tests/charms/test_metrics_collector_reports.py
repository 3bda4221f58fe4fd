"""The reports of the metrics-collector charm: of what units sent, made by the engine in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ops import testing
from tippingpoint_charm.results import LARGEST_TEXT

from tests.charms.collector import (
    bag_of_unit,
    charm,
    context,
    engine_in_this_process,
    on_machine,
    related,
    state_of,
)
from tests.charms.related import SERVER
from tests.unit.made.synthetic import JUJU, STARTED, MadeStage, write_run
from tippingpoint.collect.runs import Runs
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitWord
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.plan.read import load_plan
from tippingpoint.plan.share import part_of
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import load_run

UNITS = ["load-claimer/0", "load-claimer/1"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this unit keeps its things."""
    machine = on_machine(monkeypatch, tmp_path)
    before = os.umask(0o077)
    yield state_of(machine)
    os.umask(before)


@pytest.fixture
def engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is the charm that matters, and not that the engine has a process of its own."""
    engine_in_this_process(monkeypatch)


FIRST, SECOND = (f"2026112{day}-000000-juju-leases-small-1f3a" for day in (1, 2))
USUAL, SLOW, AGAIN = (
    [f"2026110{day}-000000-juju-leases-small-{mark}" for day in (3, 4, 5)]
    for mark in ("aaaa", "bbbb", "cccc")
)
"""Three runs each of a release, of a slower one, and of the first release again."""


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By run, what two units' parts came to: FIRST had the usual latencies, SECOND was slow."""
    place = tmp_path_factory.mktemp("parts")
    return {
        run: {unit: make_digest(a_part(place, run, index, claim_ms)) for index, unit in enumerate(UNITS)}
        for run, claim_ms in ((FIRST, 10.0), (SECOND, 400.0))
    }


def a_part(place: Path, run: str, index: int, claim_ms: float) -> Path:
    """The directory of a unit's part of a run."""
    plan = load_plan("juju-leases-small")
    part = f"{run}.{index}"
    directory = write_run(
        place / part,
        [
            MadeStage(
                size=part_of(plan, index, 2).stages[n].leases,
                claim_ms=claim_ms,
                hold=20,
                connect_ms=5.0,
                extends_per_second=part_of(plan, index, 2).stages[n].leases / plan.workload.renew_time,
            )
            for n in range(len(plan.stages))
        ],
        title=plan.name,
        plan=plan.model_dump(mode="json", exclude_none=True),
        target=JUJU,
        seed=index,
        share=(index, 2),
        unit=UNITS[index],
    )
    Manifest.load(directory).model_copy(update={"id": part}).save(directory)
    return directory


def a_run(name: str, **changes: Any) -> SharedRun:
    made = begin_run(load_plan("juju-leases-small"), UNITS, STARTED - 10.0)
    last = Turn(number=5, stage=5, kind="ramp", of=2, begin=STARTED + 88, hold=STARTED + 90, lasts=20)
    changes = {"id": name, "over": True, "started": STARTED, "turns": [last], **changes}
    return made.model_copy(update=changes)


def arrived(run: SharedRun, digests: dict[str, str]) -> testing.Relation:
    """A run and its results arrive in as many hooks."""
    units = {
        int(unit.rpartition("/")[2]): bag_of_unit(
            unit,
            UnitWord(run=run.id, phase="over", t=run.made, cores=2, offset=0.0, offset_error=0.001),
            {"run": run.id, "digest": digest},
        )
        for unit, digest in digests.items()
    }
    relation = related(run, units)
    for number in units:
        ctx = context()
        ctx.run(ctx.on.relation_changed(relation, remote_unit=number), testing.State(relations=[relation]))
    return relation


def answered(action: str, params: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    ctx = context()
    ctx.run(ctx.on.action(action, params or {}), testing.State(model=testing.Model(name="lab"), **state))
    assert ctx.action_results is not None
    return ctx.action_results


def test_the_report_of_the_latest_run_is_told_and_kept(
    state: Path, digests: dict[str, dict[str, str]]
) -> None:
    for run in (SECOND, FIRST):
        arrived(a_run(run), digests[run])

    results = answered("report")

    path = state / "reports" / f"{SECOND}.md"
    assert results["run"] == SECOND
    assert results["state"] == "over"
    assert results["path"] == str(path)
    command, key, without = results["fetch"].splitlines()
    assert command == f"juju scp -m lab metrics-collector/0:{path} ."
    assert "juju add-ssh-key -m lab" in key
    ask = f"juju run metrics-collector/0 report run={SECOND} format=md part=1"
    assert without == f"# without a key: {ask}"
    assert path.read_text().startswith(results["text"][:1000])
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("engine_here")
def test_the_report_is_of_all_units_together(digests: dict[str, dict[str, str]]) -> None:
    """Given two units' results, when JSON is asked for, then its counts are those of both."""
    run = a_run(FIRST)
    arrived(run, digests[FIRST])

    results = answered("report", {"run": run.id, "format": "json"})

    document = json.loads(Path(results["path"]).read_text())
    assert [stage["size"] for stage in document["stages"]] == [10, 25, 50, 100, 200]
    assert document["run"]["id"] == run.id


@pytest.mark.usefixtures("engine_here")
def test_a_run_that_failed_at_login_has_a_report_with_the_reason(state: Path) -> None:
    """Given units that could not begin, and so have no result, then the report says why, and so does the status."""
    why = "admin is refused: invalid entity name or password"
    run = a_run(FIRST, turns=[], started=None, missing=dict.fromkeys(UNITS, why))
    bags = {
        number: bag_of_unit(unit, UnitWord(run=run.id, phase="failed", t=run.made, problem=why))
        for number, unit in enumerate(UNITS)
    }
    relation = related(run, bags)
    for number in bags:
        ctx = context()
        ctx.run(ctx.on.relation_changed(relation, remote_unit=number), testing.State(relations=[relation]))

    assert why in answered("report")["text"]
    assert "failed" in answered("report", {"format": "junit"})["text"]
    until = time.monotonic() + 600
    while Runs(state / "runs").find("").verdict is None and time.monotonic() < until:
        time.sleep(0.1)
    assert answered("status")["verdict"] == "failed"
    assert why in answered("status")["sentence"]


@pytest.mark.usefixtures("engine_here")
def test_every_format_fits_into_a_result(state: Path, digests: dict[str, dict[str, str]]) -> None:
    run = a_run(FIRST)
    arrived(run, digests[FIRST])

    for form, suffix in (("md", "md"), ("html", "html"), ("json", "json"), ("junit", "xml")):
        results = answered("report", {"format": form})
        path = Path(results["path"])
        assert path.suffix == f".{suffix}"
        assert sum(len(value) for value in results.values()) < LARGEST_TEXT + 2000
        if path.stat().st_size > LARGEST_TEXT:
            assert "juju scp" in results.get("text", results.get("note"))


@pytest.mark.usefixtures("engine_here")
@pytest.mark.parametrize(
    ("action", "asked"),
    [
        ("report", {}),
        ("report", {"format": "html"}),
        ("compare", {"runs": f"{FIRST},{SECOND}", "format": "html"}),
    ],
)
def test_whoever_has_no_key_gets_it_in_parts(
    action: str, asked: dict[str, str], digests: dict[str, dict[str, str]]
) -> None:
    """Given a long report, when its parts are asked for one by one, then joined they are the file that scp gets."""
    for run in (FIRST, SECOND):
        arrived(a_run(run), digests[run])
    first = answered(action, asked)

    parts = [
        answered(action, {**asked, "part": n})["text"] for n in range(1, int(first.get("parts", "1")) + 1)
    ]

    assert "".join(parts) == Path(first["path"]).read_text()
    assert len(parts) > 1 or asked == {}
    beyond = len(parts) + 1
    with pytest.raises(testing.ActionFailed, match=f"part: {beyond}: expected 1"):
        answered(action, {**asked, "part": beyond})


@pytest.mark.usefixtures("engine_here")
def test_the_way_to_a_comparison_s_parts_asks_for_the_same(digests: dict[str, dict[str, str]]) -> None:
    for run in (FIRST, SECOND):
        arrived(a_run(run), digests[run])

    results = answered("compare", {"runs": f"{FIRST},{SECOND}", "baseline": SECOND, "tolerance": 0.25})

    assert results["fetch"].splitlines()[-1] == (
        f"# without a key: juju run metrics-collector/0 compare runs={SECOND},{FIRST} format=md tolerance=0.25 part=1"
    )


@pytest.mark.usefixtures("engine_here")
def test_runs_are_compared_with_the_first_or_the_baseline(digests: dict[str, dict[str, str]]) -> None:
    for run in (FIRST, SECOND):
        arrived(a_run(run), digests[run])

    worse = answered("compare", {"runs": f"{FIRST},{SECOND}"})
    better = answered("compare", {"runs": f"{SECOND}, {FIRST}"})
    named = answered("compare", {"runs": f"{FIRST},{SECOND}", "baseline": SECOND})

    assert (worse["regressed"], better["regressed"]) == ("false", "false")
    assert "One run each: differences between runs are not known." in worse["text"]
    assert named["text"] == better["text"]
    assert worse["text"].count("juju-leases-small") >= 2


@pytest.mark.usefixtures("engine_here")
def test_repeats_of_two_releases_are_compared(tmp_path: Path) -> None:
    # given three runs each of a release, of a slower one, and of the first release again
    for names, claim_ms in ((USUAL, 10.0), (SLOW, 400.0), (AGAIN, 10.0)):
        for number, run in enumerate(names):
            parts = {
                unit: make_digest(a_part(tmp_path, run, index, claim_ms * (1 + number / 50)))
                for index, unit in enumerate(UNITS)
            }
            arrived(a_run(run), parts)
    usual, slow, again = (",".join(names) for names in (USUAL, SLOW, AGAIN))

    # when the collector compares them
    worse = answered("compare", {"runs": usual, "with": slow, "control": again})
    same = answered("compare", {"runs": usual, "with": again})

    # then what repeats do not explain is judged, and nothing else
    assert (worse["regressed"], same["regressed"]) == ("true", "false")
    assert "got worse" in worse["text"]
    assert "no difference" in same["text"]
    assert f"with={slow} control={again} format=md" in worse["fetch"]


@pytest.mark.usefixtures("engine_here")
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (
            {"control": FIRST},
            f"control: {FIRST}: expected none without the runs of another release in `with`",
        ),
        ({"with": SECOND, "baseline": FIRST}, f"baseline: {FIRST}: expected none with `with`"),
        ({"with": FIRST}, f"compare: {FIRST}: expected each run once"),
    ],
)
def test_repeats_that_cannot_be_compared_are_refused(
    asked: dict[str, str], line: str, digests: dict[str, dict[str, str]]
) -> None:
    for run in (FIRST, SECOND):
        arrived(a_run(run), digests[run])

    with pytest.raises(testing.ActionFailed) as failed:
        answered("compare", {"runs": FIRST, **asked})

    assert failed.value.message.startswith(line)


@pytest.mark.usefixtures("engine_here")
def test_a_run_is_compared_with_what_was_published(digests: dict[str, dict[str, str]]) -> None:
    run = a_run(FIRST)
    arrived(run, digests[FIRST])

    results = answered("compare", {"runs": f"seed:juju-2.5.1,{run.id}"})

    assert "2.5.1" in results["text"]


@pytest.mark.usefixtures("engine_here")
def test_a_comparison_with_what_is_not_there_is_refused(digests: dict[str, dict[str, str]]) -> None:
    run = a_run(FIRST)
    arrived(run, digests[FIRST])

    for name in ("seed:nothing", "other"):
        with pytest.raises(testing.ActionFailed, match=r": expected ") as failed:
            answered("compare", {"runs": f"{run.id},{name}"})
        assert "\n" not in failed.value.message


@pytest.mark.usefixtures("engine_here")
def test_an_export_is_a_run_for_the_command_line(
    state: Path, tmp_path: Path, digests: dict[str, dict[str, str]]
) -> None:
    run = a_run(FIRST)
    arrived(run, digests[FIRST])

    results = answered("export")

    with tarfile.open(results["path"]) as archive:
        archive.extractall(tmp_path / "elsewhere", filter="data")
    opened = load_run(tmp_path / "elsewhere" / run.id)
    assert [stage.size for stage in opened.stages] == [10, 25, 50, 100, 200]
    assert results["then"].endswith("\n")
    command = results["then"].rpartition(" && ")[2].split()
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path / "elsewhere", check=False, capture_output=True
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.usefixtures("engine_here")
def test_a_unit_without_a_result_is_told_as_missing(digests: dict[str, dict[str, str]]) -> None:
    run = a_run(FIRST, missing={UNITS[1]: "the unit was removed"})
    arrived(run, {UNITS[0]: digests[FIRST][UNITS[0]]})

    results = answered("report")

    assert UNITS[1] in results["text"]
    assert "withheld" in results["text"]


def test_a_run_that_is_over_is_judged_meanwhile(state: Path, digests: dict[str, dict[str, str]]) -> None:
    """Given all results, when the last arrives, then some seconds later the status has the verdict."""
    run = a_run(FIRST)
    relation = arrived(run, digests[FIRST])
    stored = Runs(state / "runs").find("")
    until = time.monotonic() + 600
    while stored.verdict is None and time.monotonic() < until:
        time.sleep(0.1)

    ctx = context()
    out = ctx.run(ctx.on.update_status(), testing.State(relations=[relation]))

    assert out.unit_status == testing.ActiveStatus(f"1 run, last: {run.id} met")
    assert answered("status")["verdict"] == "met"


@pytest.mark.usefixtures("engine_here")
def test_a_damaged_result_is_a_missing_unit(digests: dict[str, dict[str, str]]) -> None:
    run = a_run(FIRST)
    arrived(run, {UNITS[0]: digests[FIRST][UNITS[0]], UNITS[1]: "QUJD"})

    text = answered("report")["text"]

    assert "withheld" in text
    assert "its result cannot be read" in text


def test_an_engine_that_takes_too_long_is_not_waited_for(
    state: Path, monkeypatch: pytest.MonkeyPatch, digests: dict[str, dict[str, str]]
) -> None:
    run = a_run(FIRST)
    arrived(run, digests[FIRST])
    monkeypatch.setattr(charm.sandbox, "SECONDS", 0.001)

    with pytest.raises(testing.ActionFailed, match="expected a report that is ready within 0 s"):
        answered("report")

    assert list((state / "reports").iterdir()) == []


@pytest.mark.usefixtures("engine_here")
def test_with_a_page_results_name_its_addresses(digests: dict[str, dict[str, str]]) -> None:
    for run in (FIRST, SECOND):
        arrived(a_run(run), digests[run])
    assert "page" not in answered("report")
    secret = testing.Secret({"token": "correct-horse-battery-staple"}, owner=None)
    on = {"config": {"page-token": secret.id}, "secrets": [secret]}
    ctx = context()
    ctx.run(ctx.on.config_changed(), testing.State(**on))

    page = "https://192.0.2.0:9480"
    assert answered("report", {"run": FIRST, "format": "html"}, **on)["page"] == (
        f"{page}/runs/{FIRST}/report.html"
    )
    assert answered("export", {"run": FIRST}, **on)["page"] == f"{page}/runs/{FIRST}/export.tar.gz"
    assert answered("compare", {"runs": f"{FIRST},{SECOND}"}, **on)["page"] == (
        f"{page}/compare?against={FIRST}&run={SECOND}&format=md&tolerance=0.1"
    )


def test_the_targets_resources_are_gathered_before_a_run_is_judged(
    state: Path, digests: dict[str, dict[str, str]]
) -> None:
    """Given a Prometheus elsewhere that is gone, the run says so, and is judged all the same."""
    content = {"username": "us", "password": "correct horse", "cacert": SERVER.certificate}
    secret = testing.Secret(content, owner=None)
    config = {"prometheus-url": "https://127.0.0.1:1", "prometheus-credentials": secret.id}
    units = {
        number: bag_of_unit(
            unit,
            UnitWord(run=FIRST, phase="over", t=STARTED, cores=2, offset=0.0, offset_error=0.001),
            {"run": FIRST, "digest": digests[FIRST][unit]},
        )
        for number, unit in enumerate(UNITS)
    }
    relation = related(a_run(FIRST), units)
    for number in units:
        ctx = context()
        ctx.run(
            ctx.on.relation_changed(relation, remote_unit=number),
            testing.State(relations=[relation], config=config, secrets=[secret]),
        )
    stored = Runs(state / "runs").find("")
    until = time.monotonic() + 600
    while stored.verdict is None and time.monotonic() < until:
        time.sleep(0.1)

    assert stored.verdict is not None
    told = json.loads(stored.resources or "{}")
    assert told["figures"] == []
    assert told["missing"]
    assert "correct horse" not in "".join(path.read_text() for path in stored.directory.iterdir())


DAYS = [f"202611{day:02}-000000-juju-leases-small-1f3a" for day in range(1, 15)]


@pytest.mark.usefixtures("engine_here")
def test_a_regression_is_told_and_alerted_until_it_is_acknowledged(state: Path, tmp_path: Path) -> None:
    """Given fourteen runs, of which the last seven were slow."""
    for place, run in enumerate(DAYS):
        claim_ms = 10.0 if place < 7 else 40.0
        parts = [a_part(tmp_path, run, index, claim_ms) for index in range(2)]
        arrived(a_run(run), {unit: make_digest(part) for unit, part in zip(UNITS, parts, strict=True)})
    runs = Runs(state / "runs")
    trends = charm.parts["trend"].Trends(state, runs)

    # when the trend is asked for, then it names the first slow run
    results = answered("trend", {"format": "json"})
    document = json.loads(Path(results["path"]).read_text())
    (history,) = document["histories"]
    assert [run["id"] for run in history["runs"]] == DAYS
    assert results["regressed"] == "true"
    assert {change["run"] for change in history["changes"] if change["regresses"]} == {DAYS[7]}
    assert results["fetch"].splitlines()[-1] == (
        "# without a key: juju run metrics-collector/0 trend format=json by=date part=1"
    )

    # when the next update-status comes, then Prometheus has rules that fire at once
    ctx = context()
    ctx.run(ctx.on.update_status(), testing.State())
    (rules,) = trends.alerts().rules
    (group,) = rules.groups
    assert {rule["labels"]["run"] for rule in group["rules"]} == {DAYS[7]}
    assert {(rule["alert"], rule["expr"]) for rule in group["rules"]} == {
        ("TippingPointRegression", "vector(1)")
    }
    assert any("claim p50" in rule["annotations"]["summary"] for rule in group["rules"])

    # when the change is acknowledged, then it is no regression any more, and there is no alert
    results = answered("trend", {"acknowledge": DAYS[7], "reason": "claims are written to disk now"})
    assert results["regressed"] == "false"
    assert "acknowledged: claims are written to disk now" in results["text"]
    ctx.run(ctx.on.update_status(), testing.State())
    assert trends.alerts().rules == []
    assert [run.id for run in runs.newest_first()] == DAYS[::-1]


def test_an_acknowledgement_without_a_reason_is_refused() -> None:
    with pytest.raises(testing.ActionFailed) as failed:
        answered("trend", {"acknowledge": FIRST})
    assert failed.value.message == f"acknowledge: {FIRST}: expected both acknowledge and reason"
