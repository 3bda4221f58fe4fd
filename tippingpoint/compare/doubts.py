"""Why releases, or some of their loads, are not judged or compared."""

from __future__ import annotations

from collections.abc import Sequence

from tippingpoint.compare.cells import Key
from tippingpoint.compare.disturbed import disturbed
from tippingpoint.compare.reach import not_judged
from tippingpoint.compare.repeats import Release
from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.results import RunData
from tippingpoint.util.text import show_list, show_load, show_size

WITH_A_FAULT = "with a fault"
"""Start of the reason for not judging a load at which only some runs had a fault."""


def withheld_words(releases: Sequence[Release]) -> list[str]:
    """Return the verdicts of runs that were withheld or failed."""
    return [
        f"{_run_name(release, number)}: {analysis.verdict.sentence}"
        for release in releases
        for number, analysis in enumerate(release.analyses)
        if analysis.verdict.outcome in ("withheld", "failed")
    ]


def disturbed_releases(releases: Sequence[Release]) -> dict[str, str]:
    """Return what other programs took, by release, for releases whose runs were all disturbed."""
    found = {release.name: [disturbed(run) for run in release.runs] for release in releases}
    return {name: whys[0] for name, whys in found.items() if all(whys)}


def disturbed_control(runs: Sequence[RunData]) -> list[str]:
    """Report a control whose runs were all disturbed by other programs."""
    whys = [disturbed(run) for run in runs]
    return [f"The control shows little: {whys[0]} in all of its runs."] if whys and all(whys) else []


def unjudged_words(releases: Sequence[Release], unit: str) -> list[str]:
    """Say for which releases it is uncertain whether the first one tips before them."""
    words: list[str] = []
    reaches = [release.reach for release in releases]
    for other, reach in zip(releases[1:], reaches[1:], strict=True):
        late = not_judged(reaches[0], reach)
        if late is not None:
            first = releases[0].name
            whose = first if late is reaches[0] else other.name
            words.append(
                f"Whether {first} or {other.name} tips first is uncertain: thresholds of {whose} "
                f"were not judged from {show_size(late.unjudged or 0)} {unit} on."
            )
    return words


def _run_name(release: Release, number: int) -> str:
    return release.name if len(release.runs) == 1 else f"{release.name}, run {number + 1}"


def reasons_beyond(key: Key, releases: Sequence[Release], control: Release | None) -> list[str]:
    """Return for each release after the first why it is not judged at a load; empty if it is."""
    kind, size, _ = key

    def words(release: Release) -> str:
        why = next((why for reach in release.reaches if (why := reach.beyond(kind, size))), "")
        return f"{why} {release.name}" if why else ""

    first = [releases[0], *([control] if control is not None else [])]
    base = next((why for one in first if (why := words(one))), "")
    return [_faulted([*first, one], kind, size) or base or words(one) for one in releases[1:]]


def _faulted(releases: Sequence[Release], kind: StageKind, size: float) -> str:
    """Say which release alone had a fault at a load; empty if all runs had the same faults, or none."""
    injected = [(reach.faults_at(kind, size), release) for release in releases for reach in release.reaches]
    if len({faults for faults, _ in injected}) == 1:
        return ""
    faults, release = next(one for one in reversed(injected) if one[0])
    return f"{WITH_A_FAULT} ({show_list(list(faults))}) in {release.name}"


def fault_words(releases: Sequence[Release], shared: Sequence[Key], unit: str) -> list[str]:
    """Say which releases had faults at loads where others had none or different ones: these loads are not compared."""
    apart: dict[tuple[StageKind, float], None] = {}
    for kind, size, _ in shared:
        if any(_faulted([releases[0], other], kind, size) for other in releases[1:]):
            apart[kind, size] = None
    said: list[str] = []
    for release in releases:
        faults: dict[str, list[str]] = {}
        for kind, size in apart:
            for do in sorted({do for reach in release.reaches for do in reach.faults_at(kind, size)}):
                faults.setdefault(do, []).append(show_load(size, unit, kind))
        if faults:
            of = show_list([f"a fault ({do}) {show_list(where)}" for do, where in faults.items()])
            said.append(f"{release.name} had {of}, where others had none or another: this is not compared.")
    return said
