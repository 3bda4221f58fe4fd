"""The commands of the command line: what each does, and its arguments and options.

This module imports only what a help text or a refused option needs. Each command runs in the module of its name, which
imports libraries of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tippingpoint.cli.run_names import RUNS, named_run, named_source
from tippingpoint.plan.defaults import prometheus_url

_A_RUN = "a run's directory, `last`, or a part of the id of one in ./runs"


class Command(NamedTuple):
    """A command of the command line."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Adds its arguments and options to its parser."""


def _run(parser: argparse.ArgumentParser) -> None:
    _check(parser)
    _add_run_options(parser)


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "plan", metavar="PLAN", help="a plan's file, or the name of a shipped plan (see tippingpoint plans)"
    )
    parser.add_argument(
        "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[],
        help="another value for a field of the plan: workload.renew_time=10s, stages.0.hold=1m; may be repeated",
    )  # fmt: skip
    from tippingpoint.plan.packages import options  # it searches everything that is installed

    for option, (_, text) in options().items():
        parser.add_argument(f"--{option}", metavar="NAME", help=f"{text}, as target.{option}")


def _resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=named_run, metavar="RUN", help=_A_RUN)
    _add_run_options(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=named_source, metavar="RUN", help=f"{_A_RUN}, a digest file, or seed:NAME"
    )
    parser.add_argument(
        "--format",
        choices=("text", "html", "md", "json", "junit"),
        help="the format of the report (default: text on a terminal, otherwise md)",
    )


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=RUNS,
        metavar="DIR",
        help="where the runs are (default: ./runs)",
    )


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that completes")


def _new_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the target's kind in plans: small letters and digits")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the directory in which to create it (default: .)",
    )


def _collect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=named_run, metavar="RUN", help=_A_RUN)
    _add_prometheus(parser, "a Prometheus that has scraped the target", required=True)
    parser.add_argument("--json", action="store_true", help="print the gathered figures as JSON")


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=named_source,
        metavar="RUN",
        nargs="+",
        help="runs, digest files, or seed:NAME (published); before --with, repeats of one release",
    )
    parser.add_argument(
        "--with",
        dest="others",
        type=named_source,
        metavar="RUN",
        nargs="+",
        action="append",
        default=[],
        help="runs of another release, to compare with the first one; may be given several times",
    )
    parser.add_argument(
        "--control",
        type=named_source,
        metavar="RUN",
        nargs="+",
        default=[],
        help="further runs of the first release, with --with; a difference that they show too is withheld",
    )
    parser.add_argument(
        "--baseline",
        type=named_source,
        metavar="NAME",
        help="the run or seed:NAME that the others are compared with (default: the first RUN)",
    )
    parser.add_argument(
        "--format",
        choices=("html", "md", "json"),
        default="md",
        help="the format of the output (default: md)",
    )
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        default=0.10,
        metavar="SHARE",
        help="what differs by no more than this share is neither worse nor better (default: 0.10)",
    )


def _trend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=named_run,
        metavar="RUN",
        nargs="+",
        help="runs, or a directory that has them",
    )
    parser.add_argument(
        "--by", choices=("date", "release"), default="date", help="the order of the runs (default: date)"
    )
    parser.add_argument(
        "--acknowledge",
        metavar="RUN",
        default="",
        help="accept the changes that begin with this run (its id), with --reason",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="why these changes are accepted")
    parser.add_argument(
        "--format",
        choices=("html", "md", "json"),
        default="md",
        help="the format of the output (default: md)",
    )


def _serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=Path,
        nargs="?",
        metavar="RUNS",
        default=Path("runs"),
        help="the directory with the runs (default: ./runs)",
    )
    parser.add_argument(
        "--port", type=_port, metavar="PORT", help="the port on 127.0.0.1 (default: 9481, or a free one)"
    )
    parser.add_argument("--open", action="store_true", help="open it in a browser")
    parser.add_argument("--run", metavar="ID", default="", help=argparse.SUPPRESS)
    parser.add_argument("--until-unread", action="store_true", help=argparse.SUPPRESS)


def _atlas(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        help="check: every entry; render: the pages from the entries; or add: an entry from runs",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the atlas, such as docs/atlas")
    parser.add_argument("name", nargs="?", metavar="NAME", default="", help="the entry to add")
    parser.add_argument(
        "runs", type=named_run, nargs="*", metavar="RUN", help="directories of the entry's runs: repeats"
    )


def _plans(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="PLAN", help="print this plan as YAML")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of plans")


def _shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "status", type=Path, nargs="+", metavar="STATUS",
        help="what `juju status --format json` printed of a model; - reads it",
    )  # fmt: skip


def _baselines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the figures of this baseline")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def _import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log", type=Path, metavar="FILE", help="a log of the lease tool, or a Rally task's result in JSON"
    )
    parser.add_argument(
        "--stage", dest="stages", metavar="SIZE@LINE", action="append", default=[],
        help="SIZE leases were held from this line of the log on; SIZE@LINE:storm is a restart storm",
    )  # fmt: skip
    parser.add_argument(
        "--sidecar",
        type=Path,
        metavar="FILE",
        help="a file with the stages of the log (default: LOG.stages.yaml)",
    )
    parser.add_argument(
        "--title", metavar="TEXT", help="the run's name in reports and comparisons (default: the file's name)"
    )
    _add_out(parser)


def _agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        type=Path,
        required=True,
        metavar="DIR",
        help="the directory in which the agent keeps its state",
    )
    parser.add_argument(
        "--socket", type=Path, required=True, metavar="PATH", help="the Unix socket for the charm's requests"
    )
    parser.add_argument(
        "--wake",
        type=Path,
        required=True,
        metavar="FILE",
        help="the file to create or touch when there is news for the charm",
    )
    parser.add_argument("--unit", default="", metavar="NAME", help="the unit that the agent serves")
    parser.add_argument(
        "--metrics",
        metavar="ADDRESS:PORT",
        help="the address at which a Prometheus scrapes the agent's metrics",
    )


def _clean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=named_run, metavar="RUN", help=_A_RUN)


COMMANDS = {
    "run": Command("Run a plan: a file, or the name of a shipped plan.", _run),
    "check": Command("Say what a run of a plan would do, and whether its target has room.", _check),
    "resume": Command(
        "Go on with a run that was cut: a fill, or a search (find).",
        _resume,
    ),
    "runs": Command("List the runs of a directory, with their verdicts.", _runs),
    "report": Command("Print a run's report.", _report),
    "open": Command("Show a run's report in a browser.", _clean),
    "collect": Command(
        "Add the resource use of a run's target to its directory and report, from a Prometheus.", _collect
    ),
    "compare": Command("Compare runs with a baseline; exit 1 when one is worse.", _compare),
    "trend": Command(
        "Show where figures changed over many runs; exit 1 if one got worse and was not acknowledged.",
        _trend,
    ),
    "serve": Command(
        "Show the runs here in a browser, on loopback: the run in progress live, reports, comparisons and trends.",
        _serve,
    ),
    "atlas": Command("Check, render or extend an atlas: measurements of each release.", _atlas),
    "plans": Command("List the shipped plans.", _plans),
    "baselines": Command("List the published results that runs can be compared with.", _baselines),
    "import": Command(
        "Turn a log of Juju's lease tool, or a Rally task's result in JSON, into a run.", _import
    ),
    "shape": Command(
        "Print the shape of your own Juju models, without names, for plans of the workload operate.", _shape
    ),
    "agent": Command("Play a unit's part of runs, as the service that charms start.", _agent),
    "clean": Command("Remove from the target everything that a run left there.", _clean),
    "completion": Command("Print a script with which a shell completes these commands.", _completion),
    "new-target": Command("Make the skeleton of a package that brings a new kind of target.", _new_target),
}


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that run a plan."""
    _add_out(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON on standard output")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--quiet", "-q", action="store_true", help="show no progress, only the result")
    shown.add_argument(
        "--verbose",
        "-v",
        action="store_true",
        help="show every event, and a line each second without a terminal",
    )
    parser.add_argument("--force", action="store_true", help="begin stages for which the target has no room")
    parser.add_argument("--open", action="store_true", help="watch the run in a browser (tippingpoint serve)")
    _add_prometheus(
        parser,
        "a Prometheus that scrapes the target, for thresholds on its figures",
        required=False,
    )


def _add_prometheus(parser: argparse.ArgumentParser, what: str, *, required: bool) -> None:
    """Add the options of a Prometheus and of its login."""
    url = prometheus_url()
    parser.add_argument("--prometheus", metavar="URL", required=required and not url, default=url, help=what)
    parser.add_argument(
        "--ca",
        type=Path,
        metavar="FILE",
        help="PEM file that verifies the Prometheus' certificate (default: the machine's authorities)",
    )
    parser.add_argument(
        "--username", metavar="NAME", default="", help="user name for the Prometheus, with --password-file"
    )
    for secret in ("password", "token"):
        parser.add_argument(
            f"--{secret}-file",
            type=Path,
            metavar="FILE",
            help=f"file with the {secret} for the Prometheus, mode 0600",
        )
    parser.add_argument(
        "--only",
        metavar="MATCHERS",
        default="",
        help="labels of the target's series: juju_model=lxd, instance=~10[.]0[.].* (default: all but the generators')",
    )


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=RUNS,
        metavar="DIR",
        help="the directory in which runs are kept (default: ./runs)",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:6]) <= 65535:
        raise argparse.ArgumentTypeError(f"{text}: expected a port from 1 to 65535")
    return int(text)


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text}: expected a share from 0 to 100, such as 0.10")
    return value
