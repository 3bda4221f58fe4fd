"""Makes reports of collected runs, in a process of its own: `python -m tippingpoint.collect`.

What units sent cannot be trusted. So this process reads it from standard input, needs no file of the collector's and
no privilege, and writes only to standard output. A refusal is one line on standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn

import orjson
from pydantic import BaseModel, ValidationError

from tippingpoint.analysis.analyse import analyse
from tippingpoint.collect import WORSE
from tippingpoint.collect.course import points_of
from tippingpoint.collect.live import live_document
from tippingpoint.collect.sandbox import give_way
from tippingpoint.compare.named import compare_named, compare_repeats
from tippingpoint.compare.trend.acknowledged import Acknowledged
from tippingpoint.compare.trend.history import Order, trend_of
from tippingpoint.conduct.run_state import SharedRun, UnitWord, read_word
from tippingpoint.digest.merge import gather
from tippingpoint.errors import UserError
from tippingpoint.report import write_comparison, write_report, write_trend
from tippingpoint.rundir.manifest import RunId
from tippingpoint.rundir.resources import FILE as RESOURCES
from tippingpoint.rundir.results import load_run
from tippingpoint.util.exit_codes import BAD_INPUT, MET


class CollectedRun(BaseModel):
    """One run as units reported it: texts, as they are on disk (runs.StoredRun.as_text)."""

    run: str
    words: dict[str, str] = {}
    digests: dict[str, str] = {}
    resources: str | None = None


class Asked(BaseModel):
    """The request, as JSON on standard input."""

    do: Literal["report", "live", "compare", "trend", "export", "judge"]
    runs: list[CollectedRun]
    names: list[str] = []
    """The runs to compare, in order: ids of `runs`, or seed:NAME."""
    others: list[str] = []
    """The runs of another release: then `names` are the repeats of one release, and all of them are ids of `runs`."""
    control: list[str] = []
    """Further runs of the first release, as a control in a comparison with `others`."""
    format: Literal["md", "html", "json", "junit"] = "md"
    tolerance: float = 0.10
    by: Order = "date"
    course: str = ""
    """The progress of a run in progress (runs.StoredRun.course)."""
    state: str = ""
    """Where such a run is, in a few words."""
    acknowledged: dict[RunId, str] = {}
    """The reasons for changes that are accepted: see compare.trend.acknowledged."""


def main() -> None:
    """Do what standard input requests, and exit: 0, WORSE, or 2 for a refusal."""
    give_way()
    try:
        asked = Asked.model_validate_json(sys.stdin.buffer.read())
        with tempfile.TemporaryDirectory(prefix="tippingpoint-") as place:
            if asked.do == "live":
                code = _live(asked)
            else:
                directories = [gathered(run, Path(place)) for run in asked.runs]
                code = _DO[asked.do](asked, {directory.name: directory for directory in directories})
        sys.stdout.flush()
    except ValidationError as problem:
        told = " ".join(str(problem).split())
        _refuse(f"the collected data is damaged: {told[:300]}")
    except UserError as refused:
        _refuse(str(refused))
    except OSError as problem:
        _refuse(f"{problem.filename or 'standard output'}: {problem.strerror}")
    sys.exit(code)


def _refuse(line: str) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # drop the rest of the answer
    print(f"tippingpoint: {line}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def gathered(run: CollectedRun, out: Path) -> Path:
    """Write the run's directory below `out`, as if one machine had made it; raises UserError without a result.

    A run that is over without any result has failed, or was cut: its report explains why.
    """
    shared = SharedRun.model_validate_json(run.run)
    if not run.digests and not shared.over:
        raise UserError("run", shared.id, "a run with a result; no unit has sent one yet")
    directory = gather(shared, run.digests, _words(run), out)
    if run.resources is not None:
        (directory / RESOURCES).write_text(run.resources, encoding="utf-8")
    return directory


def _words(run: CollectedRun) -> dict[str, UnitWord]:
    said = {unit: read_word(text) for unit, text in run.words.items()}
    return {unit: word for unit, word in said.items() if word is not None}


def _live(asked: Asked) -> int:
    """Print the document of a run in progress."""
    (run,) = asked.runs
    shared = SharedRun.model_validate_json(run.run)
    document = live_document(shared, _words(run), points_of(asked.course), asked.state)
    _print(orjson.dumps(document).decode())
    return MET


def _report(asked: Asked, runs: dict[str, Path]) -> int:
    (run,) = runs.values()
    _print(write_report(analyse(load_run(run)), asked.format))
    return MET


def _compare(asked: Asked, runs: dict[str, Path]) -> int:
    if asked.format == "junit":
        raise UserError("format", asked.format, "md, html or json for a comparison")
    names, others, control = (
        [str(runs.get(name, name)) for name in each] for each in (asked.names, asked.others, asked.control)
    )
    if others:
        comparison = compare_repeats([names, others], control, asked.tolerance)
    else:
        comparison = compare_named(names, asked.tolerance)
    _print(write_comparison(comparison, asked.format))
    return WORSE if comparison.regressed else MET


def _trend(asked: Asked, runs: dict[str, Path]) -> int:
    if asked.format == "junit":
        raise UserError("format", asked.format, "md, html or json for a trend")
    trend = trend_of([*runs.values()], Acknowledged(runs=asked.acknowledged), asked.by)
    _print(write_trend(trend, asked.format))
    return WORSE if trend.regressed else MET


def _print(text: str) -> None:
    sys.stdout.buffer.write(text.encode())


def _export(asked: Asked, runs: dict[str, Path]) -> int:
    (run,) = runs.values()
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|gz") as archive:
        archive.add(run, arcname=run.name, filter=_without_owner)
    return MET


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def _judge(asked: Asked, runs: dict[str, Path]) -> int:
    (run,) = runs.values()
    verdict = analyse(load_run(run)).verdict
    told = {"outcome": verdict.label, "sentence": verdict.sentence, "reasons": verdict.reasons}
    print(json.dumps(told))
    return MET


_DO: dict[str, Callable[[Asked, dict[str, Path]], int]] = {
    "report": _report,
    "compare": _compare,
    "trend": _trend,
    "export": _export,
    "judge": _judge,
}
