"""Results of Rally's tasks become runs."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from math import ceil, floor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.compare import compare
from tippingpoint.errors import UserError
from tippingpoint.importers.rally import import_rally
from tippingpoint.report import write_report
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.util.inputs import Input

BEGIN = 1_795_300_000.0
BOOT_AND_DELETE = "NovaServers.boot_and_delete_server"
UUID = "9e1c1a0e-6d3f-4a0e-8d3b-0c3f0c1b2a3d"


def iteration(
    at: float, boot: float, delete: float | None = 1.0, error: Sequence[str] = (), idle: float = 0.0
) -> dict[str, Any]:
    """One of `rally task report --json`; without a `delete` the boot failed."""
    begin = BEGIN + at
    actions = [{"name": "nova.boot_server", "started_at": begin, "finished_at": begin + boot, "children": []}]
    if delete is None:
        actions[0]["failed"] = True
    else:
        deleted = {"started_at": begin + boot, "finished_at": begin + boot + delete}
        actions.append({"name": "nova.delete_server", **deleted, "children": []})
    return {
        "timestamp": begin,
        "duration": boot + (delete or 0.0) - idle,
        "idle_duration": idle,
        "error": list(error),
        "output": {"additive": [], "complete": []},
        "atomic_actions": actions,
    }


def lasted(data: Sequence[dict[str, Any]]) -> float:
    ends = [one["timestamp"] - BEGIN + one["duration"] + one["idle_duration"] for one in data]
    return max(ends, default=0.0)


def workload(
    data: Sequence[dict[str, Any]], *, scenario: str = BOOT_AND_DELETE, concurrency: int = 5, **more: Any
) -> dict[str, Any]:
    runner = {"constant": {"times": len(data), "concurrency": concurrency}}
    return {
        "uuid": UUID,
        "scenario": {scenario: more.pop("arguments", {"flavor": {"name": "m1.tiny"}})},
        "runner": runner,
        "data": list(data),
        "load_duration": more.get("load_duration") or lasted(data),
        "sla_results": {"sla": []},
        "position": 0,
        **more,
    }


def report(*workloads: dict[str, Any]) -> dict[str, Any]:
    subtasks = [{"title": "x", "workloads": [one]} for one in workloads]
    info = {"rally_version": "5.1.1", "format_version": "1.2"}
    return {"info": info, "tasks": [{"uuid": UUID, "status": "finished", "subtasks": subtasks}]}


def old_report(*workloads: dict[str, Any]) -> list[dict[str, Any]]:
    """The same as `rally task results` has it (old_json_results.py of Rally 5.1.1)."""
    found: list[dict[str, Any]] = []
    for one in workloads:
        ((scenario, arguments),) = one["scenario"].items()
        ((kind, runner),) = one["runner"].items()
        data = [
            {
                **iteration,
                "atomic_actions": {
                    action["name"]: action["finished_at"] - action["started_at"]
                    for action in iteration["atomic_actions"]
                },
            }
            for iteration in one["data"]
        ]
        key = {"name": scenario, "pos": 0, "kw": {"args": arguments, "runner": {**runner, "type": kind}}}
        sla = one["sla_results"]["sla"]
        found.append({"key": key, "result": data, "sla": sla, "load_duration": one["load_duration"]})
    return found


def imported(told: object, folder: Path) -> list[RunData]:
    result = folder / "result.json"
    result.write_text(told if isinstance(told, str) else json.dumps(told), encoding="utf-8")
    with Input("log", result) as file:
        assert file.is_json()
    return [load_run(directory) for directory in import_rally(result, folder / "runs")]


def refusal(told: object, folder: Path) -> str:
    with pytest.raises(UserError) as refused:
        imported(told, folder)
    assert "\n" not in str(refused.value)
    assert not list((folder / "runs").glob("*")), "what is refused leaves nothing behind"
    return str(refused.value)


def notes(run: RunData) -> list[str]:
    return [event["text"] for event in run.events if event["event"] == "note"]


@pytest.mark.parametrize("form", [report, old_report])
def test_iterations_become_one_stage_with_rallys_operations(form: Any, tmp_path: Path) -> None:
    (run,) = imported(form(workload([iteration(n, 2.0 + n, 1.0) for n in range(4)])), tmp_path)

    (stage,) = run.stages
    assert (stage.number, stage.size, stage.kind) == (1, 4, "ramp")
    assert (stage.begin, stage.hold_begin, stage.end) == (0.0, 9.0, 9.0)
    assert run.operations == ["boot_server", "delete_server", "total"]
    assert [stage.count(name) for name in run.operations] == [4, 4, 4]
    assert stage.response("boot_server").min == pytest.approx(2e6, rel=0.001)
    assert stage.response("boot_server").max == pytest.approx(5e6, rel=0.001)
    assert stage.response("delete_server").mean == pytest.approx(1e6, rel=0.001)
    assert stage.response("total").max == pytest.approx(6e6, rel=0.001)
    assert stage.throughput("total") == pytest.approx(4 / 9)
    assert (run.manifest.source, run.manifest.workload, run.manifest.load_unit) == (
        "import",
        "spawn",
        "iterations",
    )
    assert run.manifest.title == f"Rally {BOOT_AND_DELETE}: 4 iterations, 5 at once"
    assert (run.manifest.started, run.manifest.ended) == (BEGIN, BEGIN + 9.0)
    assert run.things == "servers"


def test_samples_stand_on_the_clock_where_their_action_ended(tmp_path: Path) -> None:
    (run,) = imported(report(workload([iteration(0, 3.2, 1.0), iteration(10, 3.2, 1.0)])), tmp_path)

    assert list(run.curves["boot_server.ok"].t) == [3.0, 13.0]
    assert list(run.curves["delete_server.ok"].t) == [4.0, 14.0]


def test_what_failed_says_how_and_messages_of_one_kind_are_one(tmp_path: Path) -> None:
    def timed_out(uuid: str, name: str) -> list[str]:
        message = (
            f"Rally tired waiting 300.00 seconds for Server s_rally_{name}:{uuid} to become\n ('ACTIVE')"
        )
        return ["rally.exceptions.TimeoutException", message, "Traceback ..."]

    failures = [
        iteration(0, 300.0, None, timed_out(UUID, "aa11bb22_QwErTy12")),
        iteration(0.1, 300.0, None, timed_out(UUID.replace("9", "8"), "cc33dd44_ZzXxCc34")),
        iteration(
            1, 0.5, None, ["rally.exceptions.GetResourceErrorStatus", "Server is in ERROR: No valid host"]
        ),
    ]
    (run,) = imported(report(workload([*failures, iteration(2, 2.0)])), tmp_path)

    (stage,) = run.stages
    assert [stage.count("boot_server", outcome) for outcome in ("ok", "timeout", "error")] == [1, 2, 1]
    assert [stage.count("total", outcome) for outcome in ("ok", "timeout", "error")] == [1, 2, 1]
    assert [stage.count("delete_server", outcome) for outcome in ("ok", "timeout", "error")] == [1, 0, 0]
    document = json.loads(write_report(analyse(run), "json"))
    told = {
        (error["operation"], error["outcome"], error["count"], error["message"])
        for error in document["events"]["errors"]
    }
    tired = "Rally tired waiting 300.00 seconds for Server NAME:ID to become ('ACTIVE')"
    assert ("boot_server", "timeout", 2, tired) in told
    assert ("boot_server", "error", 1, "Server is in ERROR: No valid host") in told


def test_the_old_form_does_not_say_which_action_failed_so_it_is_the_last(tmp_path: Path) -> None:
    (run,) = imported(
        old_report(workload([iteration(0, 2.0, 9.0, ["TimeoutException", "tired", ""]), iteration(1, 2.0)])),
        tmp_path,
    )

    (stage,) = run.stages
    assert (stage.count("boot_server"), stage.count("delete_server", "timeout")) == (2, 1)
    assert any("nor which one failed" in note for note in notes(run))


def test_an_action_that_old_rally_gave_no_time_failed(tmp_path: Path) -> None:
    told = old_report(workload([iteration(0, 2.0, 1.0, ["X", "gone", ""])]))
    told[0]["result"][0]["atomic_actions"] = {"nova.boot_server": None}
    (run,) = imported(told, tmp_path)

    assert run.stages[0].count("boot_server", "error") == 1


def test_an_iteration_that_failed_outside_any_action_is_a_total_that_failed(tmp_path: Path) -> None:
    (run,) = imported(report(workload([iteration(0, 2.0, 1.0, ["AssertionError", "no", ""])])), tmp_path)

    (stage,) = run.stages
    assert (stage.count("delete_server"), stage.count("total", "error"), stage.count("total")) == (1, 1, 0)


def test_repetitions_of_an_action_in_an_iteration_are_added_up_as_in_rallys_table(tmp_path: Path) -> None:
    one = iteration(0, 2.0, 1.0)
    one["atomic_actions"].append(
        {"name": "nova.boot_server", "started_at": BEGIN + 3, "finished_at": BEGIN + 6, "children": []}
    )
    for number, told in enumerate((report(workload([one])), old_report(workload([one])))):
        if number:  # the old form tells repetitions apart by a number
            actions = {"nova.boot_server": 2.0, "nova.delete_server": 1.0, "nova.boot_server (2)": 3.0}
            told[0]["result"][0]["atomic_actions"] = actions
        folder = tmp_path / str(number)
        folder.mkdir()
        (run,) = imported(told, folder)
        assert run.stages[0].count("boot_server") == 1
        assert run.stages[0].response("boot_server").max == pytest.approx(5e6, rel=0.001)


def sorted_keys(told: object) -> str:
    """A result as `rally task results` of Rally 0.x printed it."""
    return json.dumps(told, sort_keys=True)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abcdefghij"), min_size=2, max_size=6, unique=True), st.data())
def test_no_action_is_blamed_by_an_order_that_is_that_of_names(names: list[str], data: st.DataObject) -> None:
    # given an iteration with an error, all of whose actions took time, as Rally 0.x has it
    told = old_report(workload([iteration(0, 2.0, 1.0, ["TimeoutException", "tired", ""])]))
    seconds = [data.draw(st.integers(1, 9)) for _ in names]
    told[0]["result"][0] |= {
        "atomic_actions": dict(zip(names, seconds, strict=True)),
        "duration": float(sum(seconds)),
    }
    with tempfile.TemporaryDirectory() as folder:
        (run,) = imported(sorted_keys(told), Path(folder))
    # then the iteration failed, and nothing is said of any action
    (stage,) = run.stages
    assert (stage.count("total", "timeout"), stage.attempts("total")) == (1, 1)
    assert [stage.attempts(name) for name in names] == [0] * len(names)
    assert any("which action failed is unknown in 1 iteration" in note for note in notes(run))


@pytest.mark.parametrize("written", [json.dumps, sorted_keys])
@pytest.mark.parametrize("place", range(3))
def test_an_action_without_a_time_is_the_one_that_failed_wherever_it_stands(
    written: Any, place: int, tmp_path: Path
) -> None:
    told = old_report(workload([iteration(0, 2.0, 1.0, ["X", "gone", ""]), iteration(1, 2.0)]))
    actions = {f"act{number}": None if number == place else 1.0 for number in range(3)}
    told[0]["result"][0] |= {"atomic_actions": actions, "duration": 2.0}
    (run,) = imported(written(told), tmp_path)

    (stage,) = run.stages
    assert [stage.count(f"act{number}", "error") for number in range(3)] == [n == place for n in range(3)]
    assert [stage.count(f"act{number}") for number in range(3)] == [n != place for n in range(3)]
    assert sum(event.get("count", 0) for event in run.events if event.get("operation") != "total") == 1


@pytest.mark.parametrize("written", [json.dumps, sorted_keys])
def test_time_outside_all_actions_is_that_of_one_that_rally_left_out_as_it_failed(
    written: Any, tmp_path: Path
) -> None:
    told = old_report(workload([iteration(0, 2.0, 1.0, ["TimeoutException", "tired", ""])]))
    told[0]["result"][0]["duration"] = 303.0
    (run,) = imported(written(told), tmp_path)

    (stage,) = run.stages
    assert (stage.count("boot_server"), stage.count("delete_server")) == (1, 1)
    assert (stage.count("total", "timeout"), stage.count("delete_server", "timeout")) == (1, 0)


def test_every_action_that_failed_counts_though_its_times_are_missing(tmp_path: Path) -> None:
    one = iteration(0, 2.0, 1.0, ["X", "gone", ""])
    for action in one["atomic_actions"]:
        action["failed"] = True
    one["atomic_actions"][1]["finished_at"] = None
    (run,) = imported(report(workload([one])), tmp_path)

    (stage,) = run.stages
    assert (stage.count("boot_server", "error"), stage.count("delete_server", "error")) == (1, 1)


def test_idle_time_is_of_the_total_as_rally_has_it(tmp_path: Path) -> None:
    (run,) = imported(report(workload([iteration(0, 2.0, 1.0, idle=0.5)])), tmp_path)

    assert run.stages[0].response("total").max == pytest.approx(3e6, rel=0.001)


def test_one_scenario_at_several_concurrencies_is_a_ladder_of_these(tmp_path: Path) -> None:
    steps = [
        workload(
            [iteration(100 * step + n, 2.0 + step) for n in range(6)], concurrency=pace, load_duration=20.0
        )
        for step, pace in enumerate((5, 10, 20))
    ]
    (run,) = imported(report(*reversed(steps)), tmp_path)

    assert run.manifest.load_unit == "iterations at once"
    assert [(stage.number, stage.size) for stage in run.stages] == [(1, 5), (2, 10), (3, 20)]
    assert [stage.begin for stage in run.stages] == [0.0, 100.0, 200.0]
    assert [stage.response("boot_server").min for stage in run.stages] == pytest.approx(
        [2e6, 3e6, 4e6], rel=0.001
    )


def at(second: float, count: int = 6) -> list[dict[str, Any]]:
    return [iteration(second + n, 2.0) for n in range(count)]


@pytest.mark.parametrize("form", [report, old_report])
@pytest.mark.parametrize(
    "other",
    [
        {"arguments": {"flavor": {"name": "m1.huge"}}},
        {"runner": {"constant": {"times": 6, "concurrency": 9, "timeout": 5}}},
        {"runner": {"rps": {"times": 6, "rps": 3}}},
        {"runner": {"of_a_plugin": {"times": 6}}},
    ],
)
def test_what_differs_in_more_than_its_load_is_no_ladder(form: Any, other: Any, tmp_path: Path) -> None:
    runs = imported(form(workload(at(0), concurrency=2), workload(at(100), **other)), tmp_path)

    assert [len(run.stages) for run in runs] == [1, 1]
    assert all(any("differ in more than the load" in note for note in notes(run)) for run in runs)


def test_what_has_other_contexts_is_no_ladder(tmp_path: Path) -> None:
    told = [
        workload(at(100 * n), concurrency=n, contexts={"users": {"tenants": n}, "quotas": {}}) for n in (1, 2)
    ]
    assert len(imported(report(*told), tmp_path)) == 2


@pytest.mark.parametrize("form", [report, old_report])
@pytest.mark.parametrize("rates", [(1, 2, 5, 8), (0.5, 0.25)])
def test_a_rate_is_the_load_and_an_open_loop(form: Any, rates: Sequence[float], tmp_path: Path) -> None:
    told = [workload(at(100 * n), runner={"rps": {"times": 6, "rps": rate}}) for n, rate in enumerate(rates)]
    (run,) = imported(form(*told), tmp_path)

    assert [stage.size for stage in run.stages] == list(rates)
    assert run.manifest.load_unit == "iterations a second"
    assert "open loop" in run.manifest.origin
    assert "closed loop" not in run.manifest.origin
    assert run.manifest.title.endswith(f"{'/'.join(map(str, rates))} a second")


def test_one_rate_alone_is_the_load_too(tmp_path: Path) -> None:
    (run,) = imported(report(workload(at(0), runner={"rps": {"times": 6, "rps": 5}})), tmp_path)

    assert (run.stages[0].size, run.manifest.load_unit) == (5, "iterations a second")
    assert any("6 iterations of" in note and "5 a second" in note for note in notes(run))


def test_a_rate_that_rises_is_no_load_of_its_own(tmp_path: Path) -> None:
    rising = {"rps": {"times": 6, "rps": {"start": 1, "end": 9, "step": 2}}}
    (run,) = imported(report(workload(at(0), runner=rising)), tmp_path)

    assert (run.stages[0].size, run.manifest.load_unit) == (6, "iterations")
    assert run.manifest.title.endswith("6 iterations, 1 to 9 a second")
    assert any("the rate rose" in note for note in notes(run))
    assert "closed loop" not in run.manifest.origin


@pytest.mark.parametrize(
    ("runners", "sizes", "unit"),
    [
        (
            [{"constant_for_duration": {"duration": 9, "concurrency": 4}}],
            [4],
            "iterations at once",
        ),  # how many were done is a result
        ([{"constant": {"times": 6, "concurrency": 2}}], [6], "iterations"),
        ([{"serial": {"times": 6}}], [6], "iterations"),
        (
            [{"serial": {"times": 6}}, {"constant": {"times": 6, "concurrency": 2}}],
            [1, 2],
            "iterations at once",
        ),
        (
            [{"constant": {"times": n, "concurrency": 2}} for n in (6, 12)],
            [2, 2],
            "iterations at once",
        ),  # more of them are no larger load
    ],
)
def test_the_load_is_what_the_runner_keeps(
    runners: list[dict[str, Any]], sizes: list[int], unit: str, tmp_path: Path
) -> None:
    told = [
        workload(at(100 * n, next(iter(runner.values())).get("times", 6)), runner=runner)
        for n, runner in enumerate(runners)
    ]
    (run,) = imported(report(*told), tmp_path)

    assert ([stage.size for stage in run.stages], run.manifest.load_unit) == (sizes, unit)


def test_each_scenario_of_a_task_is_a_run_of_its_own(tmp_path: Path) -> None:
    listing = iteration(50, 1.0)
    listing["atomic_actions"] = [
        {
            "name": "nova.list servers, all",
            "started_at": BEGIN + 50,
            "finished_at": BEGIN + 51,
            "children": [],
        }
    ]
    both = report(
        workload([iteration(0, 2.0)]), workload([listing], scenario="NovaServers.list_servers", concurrency=1)
    )
    boots, lists = imported(both, tmp_path)

    assert boots.operations == ["boot_server", "delete_server", "total"]
    assert lists.operations == ["total", "nova.list-servers-all"]
    assert lists.manifest.title == "Rally NovaServers.list_servers: 1 iterations, 1 at once"


def test_what_timed_out_as_a_whole_stands_within_the_load(tmp_path: Path) -> None:
    """Rally notes such an iteration at its end, with a duration that would end beyond the load."""
    late = {
        "timestamp": BEGIN + 60.0,
        "duration": 60.0,
        "idle_duration": 0,
        "error": ["TimeoutException", "x", ""],
        "atomic_actions": [],
    }
    (run,) = imported(report(workload([iteration(0, 2.0), late], load_duration=60.2)), tmp_path)

    (stage,) = run.stages
    assert stage.end == pytest.approx(60.2)
    assert stage.count("total", "timeout") == 1


def test_criteria_that_rally_missed_are_told(tmp_path: Path) -> None:
    sla = [
        {"criterion": "failure_rate", "detail": "Failure rate 2% > 0%", "success": False},
        {"criterion": "max_avg_duration", "detail": "ok", "success": True},
    ]
    (run,) = imported(report(workload([iteration(0, 2.0)], sla_results={"sla": sla})), tmp_path)

    missed = [note for note in notes(run) if "missed" in note]
    assert missed == ["stage 1: Rally's own criterion was missed, failure_rate: Failure rate 2% > 0%"]


def test_a_rally_run_is_compared_figure_by_figure(tmp_path: Path) -> None:
    runs: list[RunData] = []
    for name, boot in (("before", 2.0), ("after", 6.0)):
        folder = tmp_path / name
        folder.mkdir()
        data = [iteration(n, boot + n % 7 / 100) for n in range(60)]
        runs += imported(report(workload(data)), folder)
    compared = compare(runs)

    (row,) = (row for row in compared.rows if (row.operation, row.measure) == ("boot_server", "p50"))
    assert row.size == 60
    assert row.against[0].change == pytest.approx(3.0, rel=0.05)
    assert not compared.not_comparable


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ('{"tasks": [', r"result: result\.json: expected whole JSON, .*rally task report --json"),
        ({"plan": "x"}, r"result\.json: tasks: .*expected what Rally 5 writes"),
        ([], r"result: result\.json, 0 workloads without an iteration"),
        ([{"key": 1}], r"result\.json: tasks\.0\.key: 1: expected"),
        (report(), r"0 workloads without an iteration"),
        (report(workload([])), r"1 workloads without an iteration"),
        (
            report(workload([{**iteration(0, 1.0), "timestamp": "noon"}], load_duration=1.0)),
            r"workloads\.0\.data\.0\.timestamp: noon",
        ),
        (
            report(workload([{**iteration(0, 1.0), "duration": 1e300}], load_duration=1.0)),
            r"data\.0\.duration: 1e\+300",
        ),
        ({"tasks": 7}, r"result\.json: tasks: 7: expected"),
        ([1, 2, 3], r"result\.json: tasks\.0: 1: expected"),
    ],
)
def test_damaged_or_foreign_json_is_refused_in_one_line(told: object, expected: str, tmp_path: Path) -> None:
    assert re.search(expected, refusal(told, tmp_path))


def test_a_log_is_no_json(tmp_path: Path) -> None:
    log = tmp_path / "claims.log"
    log.write_text("  93.596s extended a0702/0 held for 1m30s in 47ms\n")
    with Input("log", log) as file:
        assert not file.is_json()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_stands_in_a_result_it_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    told: Any = data.draw(st.sampled_from([report, old_report]))(
        workload([iteration(0, 2.0, 1.0, ["E", "m", "t"]), iteration(1, 2.0)])
    )
    place: Any = told
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.integers(0, 3)) == 0 or not isinstance(place[key], dict | list):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    with tempfile.TemporaryDirectory() as folder:
        try:
            for run in imported(told, Path(folder)):
                assert write_report(analyse(run), "md")
        except UserError as refused:
            left = list(Path(folder).glob("runs/.*"))
            said = str(refused)
        else:
            left, said = [], ""
    assert "\n" not in said
    assert not left, "nothing unfinished is left"


def rallys_percentile(points: Sequence[float], share: float) -> float:
    """rally/common/utils or task/processing/utils of Rally 5.1.1: linear between the two nearest ranks."""
    points = sorted(points)
    k = (len(points) - 1) * share
    below, above = floor(k), ceil(k)
    if below == above:
        return points[below]
    return points[below] * (above - k) + points[above] * (k - below)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.001, 400.0), min_size=1, max_size=80),
    st.sampled_from([0.5, 0.9, 0.95]),
)
def test_percentiles_are_one_of_the_two_samples_that_rally_interpolates_between(
    seconds: list[float], share: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = [iteration(number, took) for number, took in enumerate(seconds)]
        (run,) = imported(report(workload(data)), Path(folder))
    ours = run.stages[0].response("boot_server").percentile(100 * share) / 1e6
    k = (len(seconds) - 1) * share
    low, high = sorted(seconds)[floor(k + 1e-9)], sorted(seconds)[ceil(k - 1e-9)]
    assert low * (1 - 0.001) - 2e-6 <= ours <= high * (1 + 0.001) + 2e-6
    assert low - 1e-6 <= rallys_percentile(seconds, share) <= high + 1e-6


def test_a_real_result_agrees_with_the_table_that_rally_made_of_it(tmp_path: Path) -> None:
    """10 boots and deletes, 5 at once, by Rally 5.1.1 on the lab, as `rally task report --json` has them."""
    result = Path(__file__).parents[2] / "recorded" / "rally-5.1.1.json"
    (directory,) = import_rally(result, tmp_path)
    (stage,) = load_run(directory).stages
    told = json.loads(result.read_text())["tasks"][0]["subtasks"][0]["workloads"][0]
    durations = told["statistics"]["durations"]
    assert stage.size == told["total_iteration_count"] == 10
    for row in (*durations["atomics"], durations["total"]):
        ours = stage.response(row["name"].removeprefix("nova."))
        table = row["data"]
        assert ours.total == table["iteration_count"]
        for name, value in (("min", ours.min), ("max", ours.max), ("avg", ours.mean)):
            assert value / 1e6 == pytest.approx(table[name], rel=0.001, abs=0.001)
        for name, percent in (("median", 50), ("90%ile", 90), ("95%ile", 95)):
            # Rally interpolates between two samples, of which ours is one
            near = [ours.percentile(percent - 10 + step) / 1e6 for step in (0, 9.99, 20)]
            assert min(near) <= table[name] + 0.001
            assert max(near) >= table[name] - 0.001
