"""The command line: run a plan, and read, compare, import and clean up runs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import orjson
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tippingpoint import __version__
from tippingpoint.analysis.tipping import Tipping, find_tipping
from tippingpoint.analysis.verdict import Verdict, judge
from tippingpoint.compare.baselines import PREFIX, Baseline, list_baselines, load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.errors import Refused, TargetError, UserError
from tippingpoint.importers.juju_log import import_log
from tippingpoint.importers.rally import import_rally
from tippingpoint.importers.rally_results import holds_json
from tippingpoint.monitoring.selecting import read_matchers
from tippingpoint.plan.plan import Plan, load_plan, parse_plan, plan_schema, shipped_plans
from tippingpoint.report import write_comparison, write_report
from tippingpoint.report.sections.cautions import gap_lines
from tippingpoint.run.progress import ConsoleProgress
from tippingpoint.run.resume import take_up
from tippingpoint.run.runner import Runner, TakenUp
from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.ledger import Entry, EtcdEntry, LxdEntry, OpenstackEntry, entries
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.resources import FILE as RESOURCES
from tippingpoint.rundir.resources import Resources, write_resources
from tippingpoint.rundir.results import RunData, add_resources, load_run
from tippingpoint.targets.registry import clean_run

MET, MISSED, BAD_INPUT, TARGET_FAILED, WITHHELD = range(5)
_COLOURS = {"met": "green", "missed": "red", "withheld": "yellow", "failed": "red"}
_RUNS = Path("runs")
_PATIENCE = 1.0
"""Seconds that a command may be silent."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as every other refusal."""
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 met, 1 missed, 2 bad input, 3 target failed, 4 verdict withheld."""
    _survive_narrow_encodings()
    options = build_parser().parse_args(arguments)
    code: int
    try:
        code = options.command(options)
        sys.stdout.flush()
    except (UserError, TargetError, Refused) as refused:
        print(f"tippingpoint: {refused}", file=sys.stderr)
        if isinstance(refused, Refused):
            code = refused.exit_code
        else:
            code = BAD_INPUT if isinstance(refused, UserError) else TARGET_FAILED
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has gone
        code = MET
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"tippingpoint: {problem.filename or 'standard output'}: {problem.strerror}", file=sys.stderr)
        code = BAD_INPUT
    sys.exit(code)


def _survive_narrow_encodings() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def build_parser() -> argparse.ArgumentParser:
    """All commands, with their arguments and options."""
    parser = _Parser(prog="tippingpoint", description="Finds where a cloud's control plane tips over.")
    parser.add_argument("--version", action="version", version=f"tippingpoint {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def command(name: str, call: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=call)
        return sub

    run = command("run", _run, "Run a plan: a file, or the name of a shipped plan.")
    run.add_argument(
        "plan", metavar="PLAN", help="a plan's file, or the name of a shipped one (tippingpoint plans)"
    )
    run.add_argument(
        "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[],
        help="another value for a field of the plan, as often as wanted: workload.renew_time=10s, stages.0.hold=1m",
    )  # fmt: skip
    run.add_argument(
        "--controller", metavar="NAME", help="a controller in the juju client's store, as target.controller"
    )
    run.add_argument(
        "--remote", metavar="NAME", help="a remote in the lxc client's configuration, as target.remote"
    )
    _add_run_options(run)

    resume = command(
        "resume", _resume, "Go on with a spawn run on LXD that was cut, from the stage it was in."
    )
    resume.add_argument("run", type=Path, metavar="RUN", help="its directory")
    _add_run_options(resume)

    report = command("report", _report, "Print a run's report.")
    report.add_argument("run", metavar="RUN", help="a run's directory, or seed:NAME")
    report.add_argument(
        "--format", choices=("html", "md", "json", "junit"), default="md", help="how it is written (md)"
    )

    collect = command(
        "collect", _collect, "Put what a run's target felt into its directory and report, from a Prometheus."
    )
    collect.add_argument("run", type=Path, metavar="RUN", help="its directory")
    collect.add_argument("--prometheus", metavar="URL", required=True, help="what has scraped the target")
    collect.add_argument(
        "--ca",
        type=Path,
        metavar="FILE",
        help="what its certificate is verified by (the machine's authorities)",
    )
    collect.add_argument("--username", metavar="NAME", default="", help="who logs in, with --password-file")
    for option in ("--password-file", "--token-file"):
        collect.add_argument(option, type=Path, metavar="FILE", help="of mode 0600")
    collect.add_argument(
        "--only",
        metavar="MATCHERS",
        default="",
        help="labels of what is the target's there: juju_model=lxd, instance=~10[.]0[.].* (all but generators)",
    )
    collect.add_argument("--json", action="store_true", help="print what there is as JSON")

    comparison = command("compare", _compare, "Compare runs with the first; exit 1 when one is worse.")
    comparison.add_argument("runs", metavar="RUN", nargs="+", help="runs' directories, or seed:NAME")
    comparison.add_argument(
        "--baseline", metavar="NAME", help="hold them against this one: a RUN of them, or another (the first)"
    )
    comparison.add_argument(
        "--format", choices=("html", "md", "json"), default="md", help="how it is written (md)"
    )
    comparison.add_argument(
        "--tolerance", type=_tolerance, default=0.10, metavar="SHARE", help="worse by more than this (0.10)"
    )

    plans = command("plans", _plans, "List the shipped plans.")
    plans.add_argument("name", nargs="?", metavar="PLAN", help="print this plan as YAML")
    plans.add_argument("--schema", action="store_true", help="print the plans' JSON schema")

    baselines = command("baselines", _baselines, "List the published results that runs can be held against.")
    baselines.add_argument("name", nargs="?", metavar="NAME", help="print this baseline's figures")
    baselines.add_argument("--json", action="store_true", help="print it as JSON")

    importing = command(
        "import", _import, "Turn the lease tool's log, or a Rally task's result in JSON, into a run."
    )
    importing.add_argument("log", type=Path, metavar="FILE", help="the log, or the result")
    importing.add_argument(
        "--stage", dest="stages", metavar="SIZE@LINE", action="append", default=[],
        help="from this line on, SIZE leases were held (SIZE@LINE:storm for a restart storm)",
    )  # fmt: skip
    importing.add_argument("--sidecar", type=Path, metavar="FILE", help="stages in a file (LOG.stages.yaml)")
    importing.add_argument(
        "--title", metavar="TEXT", help="what reports and comparisons call it (the file's name)"
    )
    importing.add_argument(
        "--out", type=Path, default=_RUNS, metavar="DIR", help="where runs are kept (./runs)"
    )

    agent = command("agent", _agent, "Play a unit's part of runs, as a service: what charms use.")
    agent.add_argument("--state", type=Path, required=True, metavar="DIR", help="where all it knows is kept")
    agent.add_argument("--socket", type=Path, required=True, metavar="PATH", help="where the charm asks")
    agent.add_argument(
        "--wake",
        type=Path,
        required=True,
        metavar="FILE",
        help="made or touched when there is news for the charm",
    )
    agent.add_argument("--unit", default="", metavar="NAME", help="whose agent it is")
    agent.add_argument("--metrics", metavar="ADDRESS:PORT", help="where a Prometheus finds its figures")

    clean = command("clean", _clean, "Remove from the target what a run made there and is left.")
    clean.add_argument("run", type=Path, metavar="RUN", help="its directory")
    return parser


def _add_run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", type=Path, default=_RUNS, metavar="DIR", help="where runs are kept (./runs)"
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON on standard output")
    command.add_argument("--force", action="store_true", help="try what the target says it has no room for")


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text}: expected a share from 0 to 100, such as 0.10")
    return value


def _run(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan, options.overrides)
    for option, kind in (("controller", "juju"), ("remote", "lxd")):
        name = getattr(options, option)
        if name is not None:
            if plan.target.kind != kind:
                raise UserError(f"--{option}", name, f"a plan whose target is {kind}")
            options.overrides.append(f"target.{option}={json.dumps(name)}")
            plan = load_plan(options.plan, options.overrides)
    return _run_to_report(plan, options, None)


def _resume(options: argparse.Namespace) -> int:
    plan, taken_up = take_up(options.run)
    return _run_to_report(plan, options, taken_up)


def _run_to_report(plan: Plan, options: argparse.Namespace, taken_up: TakenUp | None) -> int:
    directory = uvloop.run(_run_plan(plan, options, taken_up))
    run = load_run(directory)
    verdict, tipping = judge(run), find_tipping(run)
    page = _keep_report(run, write_report(run, "html"))
    said = write_report(run, "json") if options.json else _said(run, verdict, tipping, page)
    with contextlib.suppress(OSError):  # whatever became of our output, the exit code is the run's
        sys.stdout.write(said)
        sys.stdout.flush()
    return verdict.exit_code


def _said(run: RunData, verdict: Verdict, tipping: Tipping, page: Path | None) -> str:
    """What a run came to, in the lines a person reads; coloured on a terminal."""
    colour = _COLOURS[verdict.outcome]
    where = page or f"no room for it; make one with tippingpoint report {run.directory}"
    lines = [
        f"[bold {colour}]{verdict.outcome}[/]  {escape(verdict.sentence)}",
        escape(tipping.sentence),
        *([escape(f"{run.manifest.status}: {run.manifest.reason}")] if run.manifest.reason else []),
        escape(f"report: {where}"),
    ]
    console = Console()
    with console.capture() as captured:
        console.print("\n".join(lines), highlight=False, soft_wrap=True)
    return captured.get()


async def _run_plan(plan: Plan, options: argparse.Namespace, taken_up: TakenUp | None) -> Path:
    progress = ConsoleProgress()
    runner = Runner(plan, options.out, progress, force=options.force, takes_up=taken_up)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, runner.interrupt)
    try:
        return await runner.run()
    finally:
        progress.close()


def _keep_report(run: RunData, page: str) -> Path | None:
    """Write the report beside the run's journals, else where there is room; None when there is none."""
    for path in (run.directory / "report.html", Path(tempfile.gettempdir()) / f"{run.manifest.id}.html"):
        try:
            replace_file(path, page)
        except OSError:
            continue
        return path
    return None


def _report(options: argparse.Namespace) -> int:
    run = _load(options.run)
    if run is None:
        raise UserError(
            "run", options.run, "a run: this baseline is figures only (tippingpoint baselines NAME)"
        )
    sys.stdout.write(write_report(run, options.format))
    sys.stdout.flush()
    return MET


def _collect(options: argparse.Namespace) -> int:
    if bool(options.username) != (options.password_file is not None):
        given = options.username or str(options.password_file)
        raise UserError("--username", given, "both --username and --password-file")
    if options.username and options.token_file is not None:
        raise UserError("--token-file", str(options.token_file), "one login")
    selector = read_matchers("--only", options.only)
    run = load_run(options.run)
    if run.manifest.status == "running":
        raise UserError("run", str(options.run), "one that has ended: it is still running")
    gathered = uvloop.run(_gather(run, options, selector))
    if not gathered.figures:
        why = gathered.missing[0][1] if gathered.missing else "there is no pack of figures for this target"
        among = f" (of what --only {options.only} leaves)" if selector else ""
        print(f"tippingpoint: nothing was gathered: {why}{among}", file=sys.stderr)
        return TARGET_FAILED
    write_resources(run.directory, gathered)
    add_resources(run, gathered)
    page = _keep_report(run, write_report(run, "html"))
    if options.json:
        print(json.dumps(_summary(gathered, run.directory, page), indent=2, ensure_ascii=False))
        return MET
    missing: dict[str, list[str]] = {}
    for what, why in gathered.missing:
        missing.setdefault(why, []).append(what)
    lines = [
        f"{len(gathered.figures)} figures of {len(gathered.hosts)} hosts from {gathered.source}, "
        f"{len(gathered.t)} moments {gathered.step:g} s apart: {run.directory / RESOURCES}",
        *(f"missing: {', '.join(what)}: {why}" for why, what in missing.items()),
        *gap_lines(gathered),
        f"report: {page or 'no room for it'}",
    ]
    print("\n".join(lines))
    return MET


async def _gather(run: RunData, options: argparse.Namespace, selector: str) -> Resources:
    from tippingpoint.monitoring.gather import gather_run
    from tippingpoint.monitoring.prometheus import Prometheus  # bring an HTTP client, which no report needs

    progress = ConsoleProgress()
    try:
        async with Prometheus(
            options.prometheus,
            ca=options.ca,
            username=options.username,
            password_file=options.password_file,
            token_file=options.token_file,
        ) as prometheus:
            return await gather_run(run, prometheus, selector=selector, asked=progress.gathering)
    finally:
        progress.close()


def _summary(gathered: Resources, directory: Path, page: Path | None) -> dict[str, Any]:
    told = gathered.model_dump(mode="json", exclude={"figures", "t"})
    return {
        **told,
        "run": str(directory),
        "file": str(directory / RESOURCES),
        "report": str(page) if page else None,
        "moments": len(gathered.t),
        "hosts": gathered.hosts,
        "figures": [figure.name for figure in gathered.figures],
    }


def _compare(options: argparse.Namespace) -> int:
    names: list[str] = options.runs
    if options.baseline is not None:
        names = [options.baseline, *(name for name in names if name != options.baseline)]
    if len(names) < 2:
        raise UserError("compare", names[0], "two runs or more, or a run and a baseline")
    beside = [load_baseline(name) for name in names if name.startswith(PREFIX)]
    runs = [run for run in map(_load, names) if run is not None]
    comparison = compare(runs, options.tolerance, beside)
    sys.stdout.write(write_comparison(comparison, options.format))
    sys.stdout.flush()
    return MISSED if comparison.regressed else MET


def _load(name: str) -> RunData | None:
    """The run in a directory, or the one a baseline's published transcript makes; None when it has none."""
    return load_baseline(name).run() if name.startswith(PREFIX) else load_run(Path(name))


def _plans(options: argparse.Namespace) -> int:
    if options.schema:
        print(json.dumps(plan_schema(), indent=2))
        return MET
    plans = shipped_plans()
    if options.name is not None:
        load_plan(options.name)
        sys.stdout.write(
            plans[options.name] if options.name in plans else Path(options.name).read_text("utf-8")
        )
        return MET
    table = Table("plan", "what it does", box=None, pad_edge=False)
    for name, text in plans.items():
        table.add_row(name, parse_plan(text, source=name).description)
    Console().print(table, highlight=False)
    return MET


def _baselines(options: argparse.Namespace) -> int:
    if options.name is not None:
        baseline = load_baseline(options.name)
        print(json.dumps(_document(baseline), indent=2, ensure_ascii=False))
        return MET
    found = list_baselines()
    if options.json:
        print(json.dumps([_document(baseline) for baseline in found], indent=2, ensure_ascii=False))
        return MET
    table = Table("baseline", "what was published", box=None, pad_edge=False)
    for baseline in found:
        table.add_row(f"seed:{baseline.name}", baseline.title)
    Console().print(table, highlight=False)
    return MET


def _document(baseline: Baseline) -> Any:
    return orjson.loads(baseline.model_dump_json(exclude_none=True))


def _import(options: argparse.Namespace) -> int:
    if holds_json(options.log):
        for option, given in (("--stage", options.stages), ("--sidecar", options.sidecar)):
            if given:
                raise UserError(option, given, "none for a result of Rally, which says itself what it ran")
        for directory in import_rally(options.log, options.out, options.title):
            print(directory)
        return MET
    print(import_log(options.log, options.out, options.stages, options.sidecar, title=options.title))
    return MET


def _agent(options: argparse.Namespace) -> int:
    from tippingpoint.agent.program import run_agent  # brings an HTTP server, which no other command needs

    run_agent(options.state, options.socket, options.wake, options.unit, options.metrics)
    return MET


def _clean(options: argparse.Namespace) -> int:
    manifest = Manifest.load(options.run)
    if manifest.status == "running":
        raise UserError(
            "run",
            str(options.run),
            f"one that has ended: it is still running (process {manifest.pid}); end it first",
        )
    removed = asyncio.run(_clean_patiently(options.run))
    print(f"removed {removed}")
    return MET


async def _clean_patiently(directory: Path) -> int:
    """Clean up a run, and where that takes a while say on what."""
    progress = ConsoleProgress()
    cleaning = asyncio.create_task(clean_run(directory, progress.removing))
    await asyncio.wait([cleaning], timeout=_PATIENCE)
    if not cleaning.done():
        made = [_made(entry) for entry in entries(directory)]
        with contextlib.suppress(OSError):  # nobody need listen for it to be done
            print(f"tippingpoint: removing {', '.join(made)}, which may take minutes", file=sys.stderr)
    try:
        return await cleaning
    finally:
        progress.close()


def _made(entry: Entry) -> str:
    if isinstance(entry, EtcdEntry):
        return f"the keys below {entry.prefix}"
    if isinstance(entry, LxdEntry) and entry.target.projects:
        return f"the containers {entry.prefix}-... from {', '.join(entry.target.projects)}"
    if isinstance(entry, LxdEntry):
        return f"the projects {entry.prefix}-... and what is in them"
    if isinstance(entry, OpenstackEntry):
        return f"the servers {entry.prefix}-... and what was made for them"
    return f"model {entry.model}" if entry.made_model else f"{entry.prefix}-... from model {entry.model}"
