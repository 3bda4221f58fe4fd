"""Starts an entry of an atlas: digests of its runs, and a draft of its file with the figures of these runs."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.atlas.entry import ENTRIES, FILE, NAME, Figure
from tippingpoint.atlas.figures import measured
from tippingpoint.digest.digest_file import SUFFIX, load_digest_file, write_digest_file
from tippingpoint.errors import UserError
from tippingpoint.plan.fields import as_amount
from tippingpoint.rundir.copies import without_copies
from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.operations import OWN_CALLS

_OPEN = "?"
"""Marks where a person must fill in a draft; `atlas check` refuses it."""


class Added(NamedTuple):
    """An entry that was started."""

    draft: Path
    """The draft's file."""
    copies: list[str]
    """A line for each directory that is a copy of a run; the run counts once."""


def add_entry(atlas: Path, name: str, runs: Sequence[Path]) -> Added:
    """Write the digests of runs and a draft of `entry.yaml` to a new directory.

    Raises UserError for a name that an entry cannot have or has already, without runs, and for a run without a digest.
    """
    if not re.fullmatch(NAME, name):
        raise UserError(
            "NAME", name, "lower-case letters, digits, dots and hyphens, such as etcd-3.5.16-renewals"
        )
    if not runs:
        raise UserError("RUN", "none", "the directories of one run or more")
    directory = atlas / ENTRIES / name
    if directory.exists():
        raise UserError("NAME", name, "a name that no entry of this atlas has")
    with tempfile.TemporaryDirectory(prefix="tippingpoint-atlas-") as made:
        once, copies = without_copies((run, Manifest.load(run)) for run in runs)
        files = [Path(made) / f"run-{number}{SUFFIX}" for number, _ in enumerate(once, start=1)]
        for run, file in zip(once, files, strict=True):
            write_digest_file(run, file)
        replace_file(Path(made) / FILE, _draft([analyse(load_digest_file(file)) for file in files]))
        try:
            shutil.copytree(made, directory)
        except OSError as problem:
            shutil.rmtree(directory, ignore_errors=True)
            why = problem.strerror or "not everything could be written"
            raise UserError("DIR", str(atlas), f"a directory with room for the entry ({why})") from None
    return Added(directory / FILE, copies)


def _draft(runs: Sequence[Analysis]) -> str:
    manifest = runs[0].run.manifest
    words = manifest.target.version.split()  # 3.4.23 (v3 API), or incus 6.0.4
    release = next((word for word in words if word[0].isdigit()), _OPEN)
    host, places = manifest.host, manifest.places
    cores = len({*places.target, *places.workers}) if places else host.cores if host else 0
    fields = {
        "target": manifest.target.kind,
        "release": release,
        "load": _OPEN,
        "date": time.strftime("%Y-%m-%d", time.gmtime(manifest.started)),
        "machine": _OPEN if host is None else f"{cores} cores, {host.system}: {_OPEN}",
        "command": _OPEN,
        "limits": [_OPEN],
    }
    head = yaml.safe_dump(fields, sort_keys=False, width=118)
    lines = [f"  - {_flow(figure)}" for figure in figures_of(runs)]
    return f"{head}figures:\n" + "\n".join(lines) + "\n"


def _flow(figure: Figure) -> str:
    fields = figure.model_dump(exclude_defaults=True) | {"low": figure.low, "high": figure.high}
    fields = {name: as_amount(value) if isinstance(value, float) else value for name, value in fields.items()}
    return yaml.safe_dump(fields, sort_keys=False, default_flow_style=True, width=1000).strip()


def figures_of(runs: Sequence[Analysis]) -> list[Figure]:
    """Return the figures that runs suggest: where they tip, and each operation at the largest load that all reached."""
    asked = [Figure(figure="tips", low=None, high=None)]
    first = runs[0].run
    common = [
        stage
        for stage in first.stages
        if all(any((s.size, s.kind) == (stage.size, stage.kind) for s in run.run.stages) for run in runs)
    ]
    steps = [stage for stage in common if stage.kind == "ramp"][-1:]
    storms = [stage for stage in common if stage.kind == "storm"][-1:]
    operations = [name for name in first.operations if name not in OWN_CALLS]
    for stage in [*steps, *storms]:
        for operation in operations:
            if stage.attempts(operation):  # a search chooses its own loads, so none are common
                asked += [
                    Figure(
                        figure=kind,
                        of=operation,
                        at=stage.size,
                        storm=stage.kind == "storm",
                        low=None,
                        high=None,
                    )
                    for kind in ("p99", "failures")
                ]
    if any(run.aftermaths for run in runs):
        asked.append(Figure(figure="back", low=None, high=None))
    if any(run.fills for run in runs):
        asked.append(Figure(figure="made", low=None, high=None))
    asked.append(Figure(figure="lost", low=None, high=None))
    found = [(figure, measured(figure, runs)) for figure in asked]
    return [
        figure.model_copy(update={"low": low, "high": high})
        for figure, (low, high) in found
        if (low, high) != (None, None)
    ]
