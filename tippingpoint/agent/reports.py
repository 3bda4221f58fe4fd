"""The report of a run of all its units, from the units' results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tippingpoint.agent.joining import digest_of
from tippingpoint.agent.run_store import RunStore, StoredRun
from tippingpoint.analysis.analyse import analyse
from tippingpoint.digest.merge import gather
from tippingpoint.digest.unit_digest import read_digest
from tippingpoint.errors import UserError
from tippingpoint.report import RunFormat, render_report
from tippingpoint.report.document import build_document
from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.results import load_run

FILES: dict[RunFormat, str] = {
    "html": "report.html",
    "md": "report.md",
    "json": "report.json",
    "junit": "report.xml",
}
"""The files in a run's directory once a report has been made."""


class Written(NamedTuple):
    """A report, its path, and its verdict's outcome."""

    text: str
    path: Path
    outcome: str


def keep_digests(keeping: RunStore, run: str, given: Mapping[str, str]) -> None:
    """Save the units' results that can be read; raises UserError without disk space."""
    for unit, digest in given.items():
        try:
            read_digest(digest)
        except UserError:
            continue
        keeping.keep_digest(run, unit, digest)


def write_reports(
    keeping: RunStore,
    kept: StoredRun,
    given: Mapping[str, str],
    live: tuple[str, list[Path]] | None,
    format: RunFormat,
) -> Written:
    """Gather a run and write its report in every format into its directory; returns it in one format.

    `given` are digests by unit in addition to the stored ones, `live` is a unit whose part is still running with the
    directories of that part. Raises UserError if there is nothing to report yet, neither figures nor a failure.
    """
    run = kept.run
    keep_digests(keeping, run.id, given)
    digests = {**given, **keeping.digests(run.id)}  # the report names the ones that are invalid
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
        replace_file(directory / FILES[name], text)
    return Written(texts[format], directory / FILES[format], analysis.verdict.label)
