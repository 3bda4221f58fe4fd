"""The simulated region answers as a real one does: each story of contract/, told to it.

No recording of a real region was at hand. What the stories expect is from three places, and each call says which: a few
facts that were seen on a region of 3.3 (and no more of its answers than those), what its describe/ says, and what the
source of MAAS 3.3.11 does. So the lab, and this test, are as right as our reading of these.

By hand, the same stories are told to a real region:

    pytest tests/functional/maas/test_maas_contract.py --maas CREDENTIALS

CREDENTIALS is a file as the target's (url, api_key, ca). The region is only read, but for machines of the test's own,
which are New or created as deployed, have no power, and are removed. What would change more is told to the lab only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.maas.region import Timings
from lab.maas.simulator import MaasLab
from tests.functional.maas.region_client import Address
from tests.functional.maas.stories import SOURCES, problem_of, stories, tell

STORIES = stories()
QUICK = Timings(0.2, 0.2, 0.2, 0.2, 0.2)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "story" in metafunc.fixturenames:
        real = metafunc.config.getoption("--maas", default=None)
        told = [name for name, story in STORIES.items() if not real or story.get("only") != "lab"]
        metafunc.parametrize("story", told)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[MaasLab | None]:
    """A simulated region, unless a real one is named."""
    if request.config.getoption("--maas", default=None):
        yield None
        return
    with MaasLab(timings=QUICK) as lab:
        yield lab


@pytest.fixture
def where(request: pytest.FixtureRequest, lab: MaasLab | None) -> Address:
    """The region under test."""
    if lab is not None:
        return Address.of(lab)
    named: dict[str, Any] = yaml.safe_load(Path(request.config.getoption("--maas")).read_text())
    return Address(named["url"].rstrip("/"), named["api_key"], named.get("ca"))


async def test_a_region_answers_as_we_know_it_does(story: str, where: Address, lab: MaasLab | None) -> None:
    await tell(STORIES[story], where, lab.ask if lab else print)


@pytest.mark.parametrize("name", sorted(STORIES))
def test_every_call_of_a_story_says_how_we_know_its_answer(name: str) -> None:
    for call in STORIES[name]["calls"]:
        assert call["from"] in SOURCES, call
        assert call["where"], call
        assert "status" in call["answer"], call


async def test_a_region_that_answers_otherwise_is_found_out(where: Address) -> None:
    """Given a story that a region does not keep to, then the call is named; the story's machine is removed."""
    made = {
        "call": "POST machines/",
        "fields": {
            "architecture": "amd64/generic",
            "mac_addresses": "{mac1}",
            "power_type": "manual",
            "hostname": "contract-otherwise",
            "commission": "false",
        },
        "keep": {"machine": "system_id"},
        "answer": {"status": 200},
    }
    wrong = {"call": "GET machines/{machine}/", "answer": {"status": 200, "json": {"status_name": "Old"}}}
    with pytest.raises(
        AssertionError, match=r"GET machines/\w{6}/: 200 .*: \.status_name: 'New' is not 'Old'"
    ):
        await tell({"calls": [made, wrong]}, where, print)
    left = {"call": "GET machines/?hostname=contract-otherwise", "answer": {"status": 200, "json": []}}
    await tell({"calls": [left]}, where, print)
    with pytest.raises(AssertionError, match="401"):
        await tell({"calls": [left]}, replace(where, key="a:b:c"), print)


@pytest.mark.parametrize(
    ("value", "expected", "fits"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1, 2], [1], False),
        ([{"a": 1}, {"a": 2}], {"$has": {"a": 2}}, True),
        ([{"a": 1}, {"a": "x"}], {"$each": {"a": "<number>"}}, False),
        (None, "<text|nothing>", True),
        ("abc", "~a.*", True),
        ("abc", "~b", False),
    ],
)
def test_answers_are_compared_with_what_is_expected(value: Any, expected: Any, fits: bool) -> None:
    assert (problem_of(value, expected) is None) == fits
