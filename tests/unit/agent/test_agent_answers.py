"""What an agent answers to requests, as any charm may send them: always one line, and never something unexpected."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.agent.client import call
from tippingpoint.agent.server import Server
from tippingpoint.agent.service import Agent
from tippingpoint.conduct.director import begin_run, stop
from tippingpoint.plan.read import parse_plan

ASKED = (
    "orders",
    "leave",
    "word",
    "judge",
    "runs",
    "keep",
    "report",
    "clean",
    "task",
    "repair",
    "evict-member",
    "probe",
    "ping",
)
RUN = begin_run(parse_plan("{name: small, stages: [{leases: 10}]}"), ["load-claimer/0"], 1000.0)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
STOPPED = stop(RUN, "asked for by a user").model_dump(mode="json")
FIELDS = {
    "run": ANYTHING | st.just(STOPPED) | st.just(RUN.id) | st.just(""),
    "shared": ANYTHING | st.just(STOPPED),
    "target": ANYTHING
    | st.dictionaries(st.sampled_from(["kind", "model", "socket"]), st.text(max_size=5), max_size=2),
    "unit": ANYTHING | st.just("load-claimer/0"),
    "digests": ANYTHING | st.just({"load-claimer/0": "nonsense"}),
    "words": ANYTHING,
    "after": ANYTHING,
    "reports": ANYTHING | st.just({"load-claimer/0": {"turn": 1, "digest": "nonsense"}}),
    "format": ANYTHING | st.sampled_from(["md", "json"]),
    "member": ANYTHING,
    "id": ANYTHING,
    "reference": ANYTHING,
    "address": st.just("127.0.0.1"),
}


async def asked_of(directory: Path, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What an agent below this directory answers to these requests, and then to a ping."""

    agent = Agent(directory, directory / "wake")
    server = Server(directory / "s", agent.answer)
    await agent.open()
    await server.open()
    try:
        return [
            await asyncio.to_thread(call, directory / "s", request) for request in [*requests, {"do": "ping"}]
        ]
    finally:
        await server.close()
        await agent.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda do, fields: {**fields, "do": do},
            st.sampled_from(ASKED) | ANYTHING,
            st.fixed_dictionaries({}, optional=FIELDS),
        ),
        max_size=6,
    )
)
async def test_whatever_is_asked_is_answered(requests: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        *answers, ping = await asked_of(Path(folder), requests)
        assert ping["ok"]
        for request, answer in zip(requests, answers, strict=True):
            problem = "" if answer["ok"] else answer["problem"]
            assert "unexpected" not in problem, (request, problem)
            assert "\n" not in problem
            assert len(problem) < 1000


async def test_a_charm_that_asks_before_it_orders_is_told_so(tmp_path: Path) -> None:
    word, runs, report, repair, ping = await asked_of(
        tmp_path, [{"do": "word"}, {"do": "runs"}, {"do": "report"}, {"do": "repair"}]
    )
    assert word == {"ok": True, "figures": None, "word": None, "result": None, "report": None}
    assert runs == {"ok": True, "runs": []}
    assert report["problem"] == "run: none: expected a run that was started; there is none yet"
    assert repair["problem"] == "run: none: expected a run in progress; start one first"
    assert (ping["running"], ping["metrics"]) == ("", "")


async def test_what_is_wrong_with_a_request_is_named(tmp_path: Path) -> None:
    unknown, no_unit, no_member, bad_format, _ = await asked_of(
        tmp_path,
        [
            {"do": "dance"},
            {"do": "orders", "run": None},
            {"do": "evict-member", "member": 3},
            {"do": "report", "format": "pdf"},
        ],
    )
    assert unknown["problem"].startswith("request: ")
    assert "'ping'" in unknown["problem"]
    assert no_unit["problem"] == "orders.unit: missing: expected field required"
    assert no_member["problem"] == "evict-member.member: 3: expected a valid string"
    assert bad_format["problem"] == "report.format: pdf: expected 'html', 'md', 'json' or 'junit'"


async def test_what_a_leader_knows_is_kept_for_later(tmp_path: Path) -> None:
    # given a run whose leader has this unit keep it, with a digest that cannot be read
    over = RUN.model_copy(update={"over": True}).model_dump(mode="json")
    word = {"run": RUN.id, "phase": "over", "t": 2000.0, "cores": 2}
    kept, runs, report, _ = await asked_of(
        tmp_path,
        [
            {
                "do": "keep",
                "shared": over,
                "words": {"load-claimer/0": word},
                "digests": {"load-claimer/0": "!"},
            },
            {"do": "runs"},
            {"do": "report"},
        ],
    )
    assert kept == {"ok": True}
    assert runs["runs"] == [
        {
            "id": RUN.id,
            "plan": "small",
            "started": None,
            "status": "over",
            "verdict": "",
            "units": ["load-claimer/0"],
        }
    ]
    # then there is nothing to make a report of, which is said
    assert report["problem"] == f"run: {RUN.id}: expected a run of which some unit has measured anything"


async def test_the_report_of_a_run_that_was_refused_at_once_says_why(tmp_path: Path) -> None:
    why = "lab: bob: expected a user that it lets in"
    over = RUN.model_copy(update={"over": True, "missing": {"load-claimer/0": why}}).model_dump(mode="json")
    word = {"run": RUN.id, "phase": "failed", "problem": why, "t": 2000.0, "cores": 2}
    _, report, runs, _ = await asked_of(
        tmp_path,
        [
            {"do": "keep", "shared": over, "words": {"load-claimer/0": word}},
            {"do": "report", "format": "md"},
            {"do": "runs"},
        ],
    )
    assert f"Failed: load-claimer/0: {why}." in report["text"]
    assert runs["runs"][0]["verdict"] == "failed"


async def test_a_stopped_run_is_not_begun_and_its_unit_says_that_it_is_over(tmp_path: Path) -> None:
    told, word, ping = await asked_of(
        tmp_path,
        [{"do": "orders", "run": STOPPED, "unit": "load-claimer/0", "address": "127.0.0.1"}, {"do": "word"}],
    )
    assert told == {"ok": True}
    assert (word["word"]["phase"], word["word"]["problem"]) == ("over", "asked for by a user")
    assert ping["running"] == ""
    assert json.loads((tmp_path / "agent.json").read_text())["run"]["stopped"] == "asked for by a user"
