"""The published results that the suite ships, each figure with the sentence from which it comes.

A baseline is a YAML file in the folder `published` of its target, or here if the suite has no such target. If the
source printed its own tool's log, that log is next to the file, verbatim. `Baseline.run` imports it like any other log,
so its results are computed, not written down.
"""

from __future__ import annotations

import difflib
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from tippingpoint.compare.baseline_texts import PREFIX, baseline_texts, published_files
from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log_lines import SIDECAR_SUFFIX
from tippingpoint.util.fast_yaml import FAST_LOADER

if TYPE_CHECKING:
    from tippingpoint.rundir.results import RunData


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Section):
    """The publication of a baseline; `author` if the source names one."""

    title: str
    author: str = ""
    where: str


class BaselineTarget(_Section):
    """The target of a baseline, as in a plan."""

    kind: str
    version: str = ""


class RallyRow(_Section):
    """One row of an OpenStack Rally table: seconds, percentage of successes, and count."""

    operation: str
    min: float
    avg: float
    max: float
    p90: float
    p95: float
    success: Annotated[float, Field(ge=0, le=100)]
    count: Annotated[int, Field(ge=1)]


class RallyTable(_Section):
    """A published table, measured at the load `at`; `quote` is the sentence before it."""

    title: str
    at: dict[str, int] = {}
    quote: str
    rows: Annotated[list[RallyRow], Field(min_length=1)]


class Figure(_Section):
    """One published number. `value` alone, or the range from `value` to `to`, in `unit`."""

    what: str
    value: float
    to: float | None = None
    unit: str
    qualifier: str = ""
    """The source's words before the number: about, almost, up to."""
    at: dict[str, int] = {}
    """The load at which it was measured, such as `{"members": 50, "containers": 5000}`."""
    role: str = ""
    """The part of the target that it describes, if any: the database leader, each controller."""
    derived: str = ""
    """The arithmetic, if the number is not in the source but follows from numbers in `quote`."""
    resource: Literal["", "CPU", "memory", "heap", "disk IOPS", "network"] = ""
    """The target's resource, if it is used to compare baselines (compare/published.py)."""
    against: str = ""
    """The baseline to which it is relative. `value` is then how many `times less`, or how much less."""
    quote: str
    """The sentence from which it comes, verbatim."""


class Baseline(_Section):
    """A published result, which commands accept as `seed:NAME` in place of a run."""

    name: str
    title: str
    source: Source
    target: BaselineTarget
    workload: Literal["claim", "spawn", "grow", "cts", "store", "operate", "other"]
    """The kind of load. `other` is one for which the suite has no workload."""
    summary: str
    """What was tested, and on which system."""
    tables: list[RallyTable] = []
    figures: list[Figure] = []
    excerpt: str = ""
    """Published lines of a log from which figures are derived."""
    transcript: str | None = None
    """The name of the file with the published log of the test's own tool."""

    def run(self) -> RunData | None:
        """Import the published log as a run; None without a log. It is read once per process."""
        return _run(self.name) if self.transcript else None


def list_baselines() -> list[Baseline]:
    """Return all baselines, sorted by name."""
    return list(_all().values())


def load_baseline(name: str) -> Baseline:
    """Load the baseline NAME or `seed:NAME`. Raises UserError with the nearest name and all names."""
    found = _all().get(name.removeprefix(PREFIX))
    if found is not None:
        return found
    names = list(_all())
    near = difflib.get_close_matches(name.removeprefix(PREFIX), names, n=1, cutoff=0.5)
    nearest = f" (nearest: {near[0]})" if near else ""
    raise UserError("baseline", name, f"one of {', '.join(names)}{nearest}")


@cache
def _all() -> dict[str, Baseline]:
    return {
        name: Baseline.model_validate({"name": name, **yaml.load(text, FAST_LOADER)})
        for name, text in baseline_texts().items()
    }


@cache
def _run(name: str) -> RunData:
    # Importing a log needs numpy, which published figures do not.
    from tippingpoint.importers.juju_log import CLOSED_LOOP, import_log
    from tippingpoint.rundir.manifest import Manifest
    from tippingpoint.rundir.results import load_run

    baseline = _all()[name]
    log = str(baseline.transcript)
    # Nothing reads the directory of a published log once the run is loaded: it records no faults and has no profiles.
    with (
        tempfile.TemporaryDirectory(prefix="tippingpoint-baseline-") as kept,
        resources.as_file(published_files()[log]) as path,
        resources.as_file(published_files()[log + SIDECAR_SUFFIX]) as sidecar,
    ):
        directory = import_log(path, Path(kept), sidecar=sidecar, title=baseline.title)
        manifest = Manifest.load(directory)
        manifest.id = PREFIX + name
        manifest.source = "baseline"
        author = f", by {baseline.source.author}" if baseline.source.author else ""
        manifest.origin = f"“{baseline.source.title}”{author} ({baseline.source.where}); {CLOSED_LOOP}"
        manifest.save(directory)
        return load_run(directory)
