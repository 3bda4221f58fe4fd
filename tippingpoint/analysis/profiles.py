"""Compares profiles of the target: in which functions it spent CPU time or waited for locks, on the plateau and where
it tipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import sqrt

from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.tipping import Tipping
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.rundir.pprof import Kind, Profile
from tippingpoint.rundir.profiles import NoProfile, TakenProfile, profiles_not_taken, taken_profiles
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.numbers import show_quantity, show_rounded, show_share
from tippingpoint.util.text import choose, show_amount, show_count

FUNCTIONS = 10
"""The number of functions to name."""
LEAST_WAIT = 0.01
"""The least lock wait, in seconds per second, whose functions are named: a hundredth of one thread's time."""
_SURE = 2.0
"""The number of standard errors beyond which a difference of shares is not chance."""
_CLOCKS = 1.0
"""Seconds by which a stage's marks may be off the runner's own clock."""
_PROBLEMS = 3
"""The maximum number of reasons given for missing profiles."""
_ALL: tuple[Kind, ...] = ("CPU", "lock wait")


@dataclass(frozen=True)
class Function:
    """The shares of one function in two profiles, from 0 to 1: `own` excludes what it calls, `all` includes it."""

    name: str
    own_plateau: float
    own_tipped: float
    all_plateau: float
    all_tipped: float
    chance: bool
    """Whether the difference of its own shares may be chance, because there are few samples."""


@dataclass(frozen=True)
class Shift:
    """The differences between the profiles on the plateau and where the target tipped."""

    kind: Kind
    members: int
    """How many members were sampled at both loads; all of them are summed."""
    plateau_load: float
    tipped_load: float
    plateau_rate: float
    """For CPU: the cores in use while it was sampled. For locks: the seconds waited in each second."""
    tipped_rate: float
    plateau_samples: int
    tipped_samples: int
    functions: list[Function]
    """The functions whose own shares differ most, by the size of the difference."""
    sentence: str


@dataclass(frozen=True)
class Profiled:
    """What profiles of a run's target show."""

    shifts: list[Shift]
    sentences: list[str]
    """The findings in words, and why profiles are missing."""


@dataclass(frozen=True)
class _Summed:
    """The profiles of all members in one stage."""

    load: float
    seconds: float
    """How long each member was sampled."""
    total: float
    samples: int
    own: Mapping[str, float]
    all: Mapping[str, float]
    """Seconds by function."""

    @property
    def rate(self) -> float:
        return self.total / self.seconds

    def shares(self, name: str) -> tuple[float, float]:
        total = self.total or 1.0  # an idle target has no samples, so no function has a share
        return self.own.get(name, 0.0) / total, self.all.get(name, 0.0) / total


def profiled_of(findings: Findings, tipping: Tipping) -> Profiled | None:
    """Compare the profiles of a run; None if its plan asks for none."""
    run, plan = findings.run, findings.plan
    if plan is None or isinstance(plan, CtsPlan) or not plan.target.profiled:
        return None
    if run.units or run.manifest.share is not None:
        return Profiled([], ["No profile was taken: units that run a plan together take none."])
    taken = [each for each in taken_profiles(run.events) if _stage_of(run, each) is not None]
    shifts: list[Shift] = []
    sentences: list[str] = []
    if taken:
        loads = len({each.stage for each in taken})
        where = f"Profiles of {show_count(loads, 'stage')} are in the run's directory"
        point = tipping.point
        if point is None:
            sentences.append(f"{where}, and none was compared, because no load tipped the target.")
        else:
            found = [_shift(run, taken, kind, point.last_held, point.first_beyond) for kind in _ALL]
            shifts = [shift for shift in found if shift is not None]
            sentences += [shift.sentence for shift in shifts]
            if not any(shift.kind == "CPU" for shift in shifts):
                sentences.append(
                    f"{where}. None was compared: that takes one on the plateau and one where the target tipped."
                )
    sentences += _not_taken(profiles_not_taken(run.events), {each.kind for each in taken})
    return Profiled(shifts, sentences)


def _stage_of(run: RunData, taken: TakenProfile) -> StageResult | None:
    """Return the stage within which a profile lies; None if it lies within none."""
    for stage in run.stages:
        if stage.number == taken.stage and stage.is_step:
            end = float("inf") if stage.end is None else stage.end + _CLOCKS
            within = stage.begin - _CLOCKS <= taken.begin and taken.begin + taken.seconds <= end
            return stage if within else None
    return None


def _shift(
    run: RunData, taken: Sequence[TakenProfile], kind: Kind, last_held: float | None, beyond: float
) -> Shift | None:
    """Compare the load that tipped with one on the plateau; None if either was not sampled."""
    sizes = {stage.number: stage.size for stage in run.stages}
    of_load: dict[float, dict[int, TakenProfile]] = {}
    for each in sorted(taken, key=lambda one: one.stage):
        if each.kind == kind:
            of_load.setdefault(sizes[each.stage], {})[each.member] = each  # the last of several tries
    tipped_load = min((size for size in of_load if size >= beyond), default=None)
    held = [size for size in of_load if last_held is not None and size <= last_held]
    if tipped_load is None or not held:
        return None
    # A search ends with loads that hardly differ, so the plateau is at most half of the load that tipped, if
    # possible.
    plateau_load = max((size for size in held if size <= tipped_load / 2), default=min(held))
    members = of_load[tipped_load].keys() & of_load[plateau_load].keys()
    plateau, tipped = (
        _summed(run, load, [of_load[load][member] for member in sorted(members)])
        for load in (plateau_load, tipped_load)
    )
    if plateau is None or tipped is None:
        return None
    too_little = kind == "lock wait" and max(plateau.rate, tipped.rate) < LEAST_WAIT
    functions = [] if too_little else _functions(plateau, tipped, counted=kind == "CPU")
    sentence = _sentence(kind, plateau, tipped, functions, run.manifest.load_unit)
    return Shift(
        kind=kind,
        members=len(members),
        plateau_load=plateau_load,
        tipped_load=tipped_load,
        plateau_rate=plateau.rate,
        tipped_rate=tipped.rate,
        plateau_samples=plateau.samples,
        tipped_samples=tipped.samples,
        functions=functions,
        sentence=sentence,
    )


def _summed(run: RunData, load: float, taken: Sequence[TakenProfile]) -> _Summed | None:
    """Add up the profiles of members; None if one cannot be read, or there is none."""
    read: list[Profile] = []
    for each in taken:
        profile = each.read(run.directory)
        if profile is None:
            return None
        read.append(profile)
    own: defaultdict[str, float] = defaultdict(float)
    whole: defaultdict[str, float] = defaultdict(float)
    for profile in read:
        for sample in profile.samples:
            own[sample.stack[0]] += sample.seconds
            for name in set(sample.stack):
                whole[name] += sample.seconds
    seconds = max((profile.seconds for profile in read), default=0.0)
    if seconds <= 0:
        return None
    return _Summed(load, seconds, sum(own.values()), sum(profile.count for profile in read), own, whole)


def _functions(plateau: _Summed, tipped: _Summed, *, counted: bool) -> list[Function]:
    """Return the functions whose own shares differ most. If `counted`, each sample is one draw, so chance is known."""
    found: list[Function] = []
    for name in {*plateau.own, *tipped.own}:
        (own_before, all_before), (own, all_) = plateau.shares(name), tipped.shares(name)
        parts = (own_before, plateau.samples), (own, tipped.samples)
        error = sqrt(sum(share * (1 - share) / max(1, samples) for share, samples in parts))
        chance = counted and abs(own - own_before) <= _SURE * error
        found.append(Function(name, own_before, own, all_before, all_, chance))
    return sorted(found, key=lambda one: (-abs(one.own_tipped - one.own_plateau), one.name))[:FUNCTIONS]


def _sentence(kind: Kind, plateau: _Summed, tipped: _Summed, functions: Sequence[Function], unit: str) -> str:
    """Say how much was used, or how long locks were waited for, at both loads, and which function grew most."""
    if kind == "lock wait" and not plateau.samples and not tipped.samples:
        return "No wait for a lock was recorded: there was none, or the target samples none."
    at, before = show_amount(tipped.load, unit), show_amount(plateau.load, unit)
    if kind == "CPU":
        cores = show_rounded(tipped.rate, 2)
        words = f"used {cores} {choose(tipped.rate, 'core', 'cores')} at {at}, and {show_rounded(plateau.rate, 2)}"
    else:
        waits = [show_quantity(rate, "seconds") for rate in (tipped.rate, plateau.rate)]
        words = f"waited {waits[0]} of each second for locks at {at}, and {waits[1]}"
    words = f"While it was profiled, the target {words} at {before}"
    if not functions:
        return f"{words}: too little to look at."
    grown = max(functions, key=lambda one: one.own_tipped - one.own_plateau)
    if grown.chance or grown.own_tipped <= grown.own_plateau:
        return f"{words}. No function has a clearly larger share of that than before."
    shares = f"from {show_share(grown.own_plateau)} to {show_share(grown.own_tipped)}"
    return f"{words}. The share of {grown.name} grew most, {shares}."


def _not_taken(problems: Sequence[NoProfile], taken: Set[Kind]) -> list[str]:
    """Say why profiles of members or loads are missing although others of that kind were taken; each reason once."""
    of = {"CPU": " of CPU", "lock wait": " of waits for locks"}
    kinds: defaultdict[tuple[str, bool], list[Kind]] = defaultdict(list)
    for kind in _ALL:
        why = _reasons(each.problem for each in problems if each.kind == kind)
        kinds[why, kind in taken].append(kind)
    whose = {case: "" if len(found) == len(_ALL) else of[found[0]] for case, found in kinds.items()}
    return [
        f"Profiles{whose[why, some]} are missing: {why}." if some else f"No profile{whose[why, some]}: {why}."
        for why, some in kinds
        if why
    ]


def _reasons(problems: Iterable[str]) -> str:
    said = list(dict.fromkeys(problems))
    more = f", and {len(said) - _PROBLEMS} more reasons" if len(said) > _PROBLEMS else ""
    return f"{'; '.join(said[:_PROBLEMS])}{more}"
