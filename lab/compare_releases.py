"""Runs one plan on several releases of a target, in turns, and writes one page that compares them.

    python -m lab.compare_releases etcd 3.4 3.5 --plan etcd-leases-small

The order is A B A', A' B A, A B A': so the machine's drift is not taken for a release's. A' is the first release again,
as a control. Each run has a private target of its own. The exit code is 0 with a page, 130 after Ctrl-C, and 3 if a
release cannot be had or measured nothing. The runs before that are kept, and the command that compares them is printed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.arguments import compare_releases_parser
from lab.cgroups import LEAST_CPU
from lab.commands import compare_words, run_on, write_page
from lab.control import LabError
from lab.demo import LABS, Lab
from lab.etcd.cluster import EtcdLab
from lab.places import Places, take_places
from lab.watched import watched
from tippingpoint.errors import UserError
from tippingpoint.plan.read import load_plan
from tippingpoint.util.durations import parse_duration
from tippingpoint.util.text import show_count

MEMBERS = 3
"""The members of each target: an OpenStack's computes."""


def main(arguments: Sequence[str]) -> int:
    """Run and compare, and return the exit code."""
    options = compare_releases_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs: dict[str, list[Path]] = {}
    try:
        _run_all(options, runs)
    except (LabError, UserError) as problem:
        print(f"compare-releases: {problem}", file=sys.stderr)
        _say_kept(options.releases, runs)
        return 3 if isinstance(problem, LabError) else 2
    except KeyboardInterrupt:
        _say_kept(options.releases, runs)
        return 130
    page = options.out / f"{options.target}-{'-'.join(options.releases)}.html"
    return write_page(page, *compared(options.releases, runs))


def compared(releases: Sequence[str], runs: Mapping[str, Sequence[Path]]) -> list[str]:
    """Return the arguments of `compare` for these runs of releases; empty without runs of two."""
    first, *others = [release for release in releases if release in runs]
    words = [str(run) for run in runs[first]]
    for release in others:
        words += ["--with", *map(str, runs[release])]
    again = runs.get(_control(first), ()) if first == releases[0] else ()
    return [*words, *(["--control", *map(str, again)] if again else [])] if others else []


def _say_kept(releases: Sequence[str], runs: Mapping[str, Sequence[Path]]) -> None:
    """Say which runs were made before something failed, and how they are compared."""
    made = [run for of in runs.values() for run in of]
    if not made:
        return
    words = compared(releases, runs) if any(release in runs for release in releases) else []
    print(f"compare-releases: {show_count(len(made), 'run')} kept" + (", compared by:" if words else ":"))
    print(f"  {compare_words(words) if words else ' '.join(map(str, made))}")


def order_of(releases: Sequence[str], repeats: int) -> list[list[str]]:
    """Return the rounds: each release once and the control, every second round backwards."""
    forwards = [*releases, _control(releases[0])]
    return [forwards if number % 2 == 0 else forwards[::-1] for number in range(repeats)]


def _control(release: str) -> str:
    return f"{release}-control"


def _run_all(options: argparse.Namespace, runs: dict[str, list[Path]]) -> None:
    """Run everything, and put the directory of each run to those of its release as soon as it is made."""
    if options.repeats < 2:
        raise UserError("--repeats", options.repeats, "2 or more: one run does not tell how runs differ")
    releases: list[str] = options.releases
    if len(set(releases)) != len(releases):
        raise UserError("RELEASE", ", ".join(releases), "each release once: the control repeats the first")
    holds = _holds(options.plan, options.hold)
    places = take_places(options.cpus, MEMBERS)
    start = _starter(options.target, options.cpu, places)
    rounds = order_of(releases, options.repeats)
    count, done = sum(map(len, rounds)), 0
    print(f"compare-releases: {places.sentence()}", flush=True)
    for names in rounds:
        for name in names:
            done += 1
            print(
                f"compare-releases: {done} of {count}: {options.plan} on {options.target} {name}", flush=True
            )
            with start(name.removesuffix(_control(""))) as lab, watched(lab) as prometheus:
                settings = [f"name={options.target}-{name}", *lab.settings(), *holds, *options.settings]
                runs.setdefault(name, []).append(run_on(prometheus, options.plan, options.out, settings))


def _starter(target: str, cpu: float | None, places: Places) -> Callable[[str], Lab]:
    """Return what starts a private target of a release. UserError for a limit that its lab does not have."""
    if cpu is None:
        return lambda release: LABS[target](MEMBERS, release, places)
    if target != "etcd":
        raise UserError("--cpu", f"{cpu:g} of {target}", "etcd: other labs limit no member")
    if not LEAST_CPU <= cpu <= 1:
        raise UserError("--cpu", f"{cpu:g}", f"{LEAST_CPU:g} to 1, of a core")
    return lambda release: EtcdLab(MEMBERS, release=release, cpu=cpu, places=places)


def _holds(name: str, longest: str) -> list[str]:
    """Return the settings that shorten the holds of a plan's stages; a search has its own rule for that."""
    try:
        most = parse_duration(longest)
    except ValueError:
        raise UserError("--hold", longest, "a time, such as 4s") from None
    plan = load_plan(name)
    stages = getattr(plan, "stages", [])
    return [f"stages.{number}.hold={longest}" for number, stage in enumerate(stages) if stage.hold > most]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
