"""The report of a run of all its units, from what each of them came to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tippingpoint.agent.joining import digest_of
from tippingpoint.agent.keeping import Keeping, Kept
from tippingpoint.analysis.analyse import analyse
from tippingpoint.errors import UserError
from tippingpoint.report import RunFormat, render_report
from tippingpoint.report.document import build_document
from tippingpoint.rundir.results import load_run
from tippingpoint.units.digest import read_digest
from tippingpoint.units.merge import gather

FILES: dict[RunFormat, str] = {
    "html": "report.html",
    "md": "report.md",
    "json": "report.json",
    "junit": "report.xml",
}
"""What a run's directory has once a report of it was made."""


class Written(NamedTuple):
    """A report, where it is, and the outcome of its verdict."""

    text: str
    path: Path
    outcome: str


def keep_digests(keeping: Keeping, run: str, given: Mapping[str, str]) -> None:
    """Keep what units came to, as far as it can be read; UserError when there is no room."""
    for unit, digest in given.items():
        try:
            read_digest(digest)
        except UserError:
            continue
        keeping.keep_digest(run, unit, digest)


def write_reports(
    keeping: Keeping,
    kept: Kept,
    given: Mapping[str, str],
    live: tuple[str, list[Path]] | None,
    format: RunFormat,
) -> Written:
    """Gather a run and write its report in every format beside it; returns it in one.

    `given` are digests by unit beside those that are kept, `live` a unit and the directories of its part that
    still goes on. UserError when there is nothing to tell of yet, neither a figure nor why there is none.
    """
    run = kept.run
    keep_digests(keeping, run.id, given)
    digests = {**given, **keeping.digests(run.id)}  # of those that are none the report says so
    if live is not None:
        unit, directories = live
        digests.setdefault(unit, digest_of(directories))
    failed = (run.over and run.missing) or any(word.phase == "failed" for word in kept.words.values())
    if not digests and not failed:
        raise UserError("run", run.id, "a run of which some unit has measured anything")
    directory = gather(run, digests, kept.words, keeping.gathered)
    analysis = analyse(load_run(directory))
    document = build_document(analysis)
    texts: dict[RunFormat, str] = {name: render_report(document, name) for name in FILES}
    for name, text in texts.items():
        (directory / FILES[name]).write_text(text, encoding="utf-8")
    return Written(texts[format], directory / FILES[format], analysis.verdict.label)
