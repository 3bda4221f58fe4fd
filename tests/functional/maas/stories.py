"""Stories of calls with what a MAAS answers (contract/*.yaml), told to a region.

A call's answer has its `status`, and as far as they matter its content `type`, the `keys` of its object, its `json`,
its `text` and `headers`. An expected value that is an object needs not have all fields of the answer's, and else is
what it is, but

    <text>, <number>, <list>, <object>, <nothing>, <text|nothing>     any value of the type
    ~REGEX                                                            a text that matches
    {$each: ...}, {$has: ...}                                         each thing of a list; one of them

`keep` gives a field of the answer a name for the calls that follow, in {braces}, as `name`, the run's own, and `mac1`
to `mac4` have from the beginning. `until` repeats a call until its answer has these fields. `lab` is done before, by
the control socket. `from` says how we know: seen (on a region of 3.3), described (by its describe/) or source (of MAAS
3.3.11), and `where` names the place, below src/maasserver/ if it is a file.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.functional.maas.region_client import Address, Region

DIRECTORY = Path(__file__).with_name("contract")
SOURCES = ("seen", "described", "source")
_WRONG = "wrong:wrong:wrong"
_TYPES: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "nothing": lambda value: value is None,
}
_PAUSE_S = 0.05


def stories() -> dict[str, dict[str, Any]]:
    """All stories by their files' names."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted(DIRECTORY.glob("*.yaml"))}


async def tell(story: Mapping[str, Any], where: Address, act: Callable[[dict[str, Any]], object]) -> None:
    """Make a story's calls, and remove the machines that it kept.

    AssertionError has the call that is answered otherwise."""
    number = secrets.token_hex(3)
    names: dict[str, Any] = {"name": f"contract-{number}"}
    for index in range(1, 5):
        names[f"mac{index}"] = "02:00:" + ":".join(re.findall("..", number)) + f":0{index}"
    async with Region(where) as region:
        try:
            for call in story["calls"]:
                await _made(call, region, where, names, act)
        finally:
            for kept in [name for name in names if name.startswith("machine")]:
                await region.call("DELETE", f"machines/{names[kept]}/")


async def _made(
    call: Mapping[str, Any],
    region: Region,
    where: Address,
    names: dict[str, Any],
    act: Callable[[dict[str, Any]], object],
) -> None:
    told = _filled(call, names)
    if "lab" in told:
        await asyncio.to_thread(act, told["lab"])
    method, path = told["call"].split(" ", 1)
    pairs = [
        (name, one)
        for name, value in told.get("fields", {}).items()
        for one in (value if isinstance(value, list) else [value])
    ]
    while True:
        key = told.get("key")
        asked = region
        if key:
            asked = Region(where, key=None if key == "none" else _WRONG)
            asked.http = region.http
        status, answer, headers = await asked.answer(method, path, aiohttp.FormData(pairs) if pairs else None)
        until = told.get("until")
        if not until or (isinstance(answer, dict) and problem_of(answer, until) is None):
            break
        await asyncio.sleep(_PAUSE_S)
    expected = told["answer"]
    about = f"{told['call']}: {status} {str(answer)[:400]!r}"
    assert status == expected["status"], about
    if "type" in expected:
        assert headers.get("Content-Type", "").partition(";")[0] == expected["type"], about
    if "keys" in expected:
        assert sorted(answer) == sorted(expected["keys"]), about
    for kind in ("json", "text"):
        if kind in expected:
            assert (problem := problem_of(answer, expected[kind])) is None, f"{about}: {problem}"
    for name, value in expected.get("headers", {}).items():
        assert headers.get(name) == value, f"{about}: {name}"
    for name, field in told.get("keep", {}).items():
        names[name] = answer[field]


def problem_of(value: Any, expected: Any, at: str = "") -> str | None:
    """What of a value is not as expected; None if all is."""
    wrong = f"{at or 'it'}: {str(value)[:200]!r} is not {expected!r}"
    if isinstance(expected, dict):
        if "$each" in expected or "$has" in expected:
            if not isinstance(value, list):
                return wrong
            if "$each" in expected:
                found = [problem_of(one, expected["$each"], f"{at}[{i}]") for i, one in enumerate(value)]
                return next((problem for problem in found if problem), None)
            return None if any(problem_of(one, expected["$has"]) is None for one in value) else wrong
        if not isinstance(value, dict):
            return wrong
        missing = [name for name in expected if name not in value]
        if missing:
            return f"{at or 'it'}: has no {', '.join(missing)}"
        found = [problem_of(value[name], want, f"{at}.{name}") for name, want in expected.items()]
        return next((problem for problem in found if problem), None)
    if isinstance(expected, list):
        if not isinstance(value, list) or len(value) != len(expected):
            return wrong
        found = [
            problem_of(one, want, f"{at}[{i}]")
            for i, (one, want) in enumerate(zip(value, expected, strict=True))
        ]
        return next((problem for problem in found if problem), None)
    if isinstance(expected, str) and expected.startswith("~"):
        return None if isinstance(value, str) and re.fullmatch(expected[1:], value) else wrong
    if isinstance(expected, str) and (named := re.fullmatch(r"<([a-z|]+)>", expected)):
        return None if any(_TYPES[kind](value) for kind in named[1].split("|")) else wrong
    return None if type(value) is type(expected) and value == expected else wrong


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    """A part of a story with what the names in braces stand for. A text that is a name alone is what it stands for."""
    if isinstance(value, dict):
        return {_filled(name, names): _filled(one, names) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, names) for one in value]
    if not isinstance(value, str):
        return value
    for name, known in names.items():
        if value == f"{{{name}}}":
            return known
        value = value.replace(f"{{{name}}}", str(known))
    return value
