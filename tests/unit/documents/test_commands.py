"""Every command in a document exists: commands, options, plans, fields, charms' actions, endpoints, scripts, tests."""

from __future__ import annotations

import configparser
import functools
import io
import itertools
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from lab.arguments import HELPED
from lab.arguments import main as read_arguments
from scripts._reference.charms import CHARMS, charmcraft, endpoints
from scripts._reference.commands import subcommands
from tests.unit.documents.reading import ROOT, commands, documents, inline, name_of, names, plans
from tippingpoint.cli import arguments
from tippingpoint.cli.program import build_parser
from tippingpoint.compare.baselines import list_baselines
from tippingpoint.errors import UserError
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.fields import Section
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.kinds import section_of
from tippingpoint.plan.operate import OperatePlan
from tippingpoint.plan.packages import BUILT_IN
from tippingpoint.plan.read import load_plan, parse_plan
from tippingpoint.plan.shipped import shipped_plans
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.plan.store import StorePlan
from tippingpoint.rundir.operations import OPERATIONS
from tippingpoint.targets.openstack.ledger import PASSWORD

PLACEHOLDER = re.compile(r"[A-Z][A-Z_:/-]*\d*|\.\.\.|\$.*|<.*>")
"""What a reader puts a word of their own for."""


class Wrong(Exception):
    """A command that does not exist as it is written."""


@pytest.fixture
def _any_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a reader, by whatever name."""
    monkeypatch.setattr(arguments, "named_run", Path)
    monkeypatch.setattr(arguments, "named_source", str)


@pytest.mark.usefixtures("_any_run")
@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_commands_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    wrong: list[str] = []
    for words, whole in [
        *((words, True) for words in commands(text)),
        *((words, False) for words in inline(text)),
    ]:
        words = ["bash" if word == "SHELL" else word for word in words]
        try:
            check(words, whole)
        except Wrong as problem:
            wrong.append(f"{' '.join(words)}: {problem}")
    assert wrong == []


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_plans_are_accepted(document: Path) -> None:
    for plan in plans(document.read_text(encoding="utf-8")):
        parse_plan(plan, source=name_of(document))


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_names_in_the_text_exist(document: Path) -> None:
    """Given fields of plans and names that begin as those of shipped plans, then there are such fields and names."""
    wrong: list[str] = []
    for name in names(document.read_text(encoding="utf-8")):
        try:
            if re.match(r"(target|workload|find|thresholds|faults|stages)\.(?!py|yaml)\w", name):
                check_key(re.split(r"[=:]", name)[0])
        except Wrong as problem:
            wrong.append(str(problem))
        if re.fullmatch(rf"({'|'.join(BUILT_IN)})-[a-z0-9-]+", name) and name not in known_names():
            wrong.append(f"{name}: expected a shipped plan, a figure, an endpoint, an interface or an option")
    assert wrong == []


@functools.cache
def known_names() -> set[str]:
    """The names of plans, operations, figures, baselines and files of runs, and all in the charms' charmcraft.yaml."""
    found = {*shipped_plans(), *OPERATIONS, PASSWORD, *(baseline.name for baseline in list_baselines())}
    found |= {figure.name for pack in shipped_packs().values() for figure in pack.figures}
    for charm in CHARMS:
        found |= {*charmcraft(charm)["config"]["options"], *endpoints(charm)}
        found |= {about["interface"] for _, about in endpoints(charm).values()}
    return found


def test_a_plan_in_a_document_is_found() -> None:
    plan = "name: my-ramp\nstages:\n  - {leases: 5}"
    assert plans(f"Text:\n\n```yaml\n{plan}\n```\n\n    tippingpoint plans\n") == [plan]


def check(words: list[str], whole: bool) -> None:
    """Wrong where a command does not exist; one that is not `whole` may lack arguments."""
    match words[0]:
        case "tippingpoint":
            check_tippingpoint(words, whole)
        case "juju":
            check_juju(words[1:])
        case "tox":
            check_tox(words[1:])
        case "pytest" | "python":
            check_tests(words[1:])
        case script if script.startswith("./scripts/"):
            check_script(words)
        case _:
            pass


# -- tippingpoint ----------------------------------------------------------------------------------


def check_tippingpoint(words: list[str], whole: bool) -> None:
    arguments = [word for word in words[1:] if word != "[OPTION...]"]
    if not arguments or PLACEHOLDER.fullmatch(arguments[0]):
        return
    parsers = subcommands(build_parser())
    command = arguments[0]
    if not command.startswith("-") and command not in parsers:
        raise Wrong(f"expected one of {', '.join(parsers)}")
    options = parsers[command]._option_string_actions if command in parsers else {}
    for word in arguments[1:]:
        if word.startswith("--") and word.partition("=")[0] not in options:
            raise Wrong(f"{word}: expected one of {', '.join(options)}")
    if whole:
        parse(arguments)
    for name in arguments:
        if name.startswith("seed:"):
            check_baseline(name)
    overrides = [value for option, value in itertools.pairwise(arguments) if option == "--set"]
    if command == "run" and len(arguments) > 1 and not arguments[1].startswith("-"):
        check_plan(arguments[1], overrides)
    for override in overrides:
        check_key(override.partition("=")[0])


def parse(arguments: list[str]) -> None:
    """Wrong where the command line refuses these arguments."""
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        try:
            build_parser().parse_args(arguments)
        except SystemExit as end:
            if end.code:
                raise Wrong(said.getvalue().strip()) from None


def check_plan(name: str, overrides: list[str]) -> None:
    """Wrong where a plan's name is none of a shipped one or of a file, or its fields are refused."""
    shipped = name in shipped_plans()
    if not shipped and not PLACEHOLDER.fullmatch(name) and not name.endswith((".yaml", ".yml")):
        raise Wrong(f"{name}: expected a shipped plan, or a file")
    given = [
        each for each in overrides if "..." not in each and not PLACEHOLDER.fullmatch(each.partition("=")[0])
    ]
    if shipped or (ROOT / name).is_file():
        try:
            load_plan(name if shipped else str(ROOT / name), given)
        except UserError as problem:
            if problem.field != "target.kind":  # the example's is a package that need not be installed
                raise Wrong(str(problem)) from None


def check_key(key: str) -> None:
    """Wrong where no plan has a field of this name."""
    if PLACEHOLDER.fullmatch(key):
        return
    places: list[type[Section]] = [ClaimPlan, SpawnPlan, GrowPlan, CtsPlan, StorePlan, OperatePlan]
    for part in key.split("."):
        if part.isdigit():
            continue
        fields = [place.model_fields[part] for place in places if part in place.model_fields]
        if places and not fields:
            raise Wrong(f"{key}: expected a field of a plan")
        if part == "target":
            places = [section_of(kind) for kind in BUILT_IN]
        else:
            places = [model for field in fields for model in models_in(field.annotation)]


def models_in(annotation: Any) -> Iterator[type[Section]]:
    """The parts of a plan in the type of a field."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from models_in(argument)


def check_baseline(name: str) -> None:
    known = [f"seed:{baseline.name}" for baseline in list_baselines()]
    if name not in known and not PLACEHOLDER.fullmatch(name.removeprefix("seed:")):
        raise Wrong(f"{name}: expected one of {', '.join(known)}")


# -- juju ------------------------------------------------------------------------------------------


def check_juju(words: list[str]) -> None:
    if not words:
        return
    named = [word for word in words[1:] if not word.startswith("-")]
    match words[0]:
        case "run":
            check_action(named)
        case "config":
            check_options(named)
        case "integrate" | "relate":
            for end in named:
                check_endpoint(end)
        case "offer":
            for end in named[:1]:
                check_endpoint(end)
        case "deploy":
            for path in named:
                if path.startswith(("./bundles/", "bundles/")) and not (ROOT / path).exists():
                    raise Wrong(f"{path}: no such file")
        case _:
            pass


def charms_named(application: str) -> list[str]:
    """The charms that an application's name stands for; all of them for a placeholder, none for others' charms."""
    if application in CHARMS:
        return [application]
    return [*CHARMS] if re.fullmatch(r"[A-Z]+", application) else []


def check_action(named: list[str]) -> None:
    if len(named) < 2 or PLACEHOLDER.fullmatch(named[1]):
        return
    unit, action, *parameters = named
    charms = charms_named(unit.partition("/")[0])
    if not charms:
        return
    actions = [charmcraft(charm)["actions"] for charm in charms]
    known = [each[action].get("params", {}) for each in actions if action in each]
    if not known:
        raise Wrong(f"{action}: expected one of {', '.join(actions[0])}")
    for parameter in parameters:
        key, equals, value = parameter.partition("=")
        if not equals:
            continue
        if not any(key in each for each in known):
            raise Wrong(f"{key}: expected one of {', '.join(known[0])}")
        if key == "plan":
            check_plan(value, [])
        if key == "overrides":
            for override in re.split(r"[;\n] ?", value):
                check_key(override.partition("=")[0].strip())


def check_options(named: list[str]) -> None:
    charms = charms_named(named[0]) if named else []
    options = {option for charm in charms for option in charmcraft(charm)["config"]["options"]}
    for word in named[1:]:
        key = word.partition("=")[0]
        if charms and key not in options and not PLACEHOLDER.fullmatch(key):
            raise Wrong(f"{key}: expected one of {', '.join(sorted(options))}")


def check_endpoint(end: str) -> None:
    application, colon, endpoint = end.partition(":")
    charms = charms_named(application)
    known = {each for charm in charms for each in endpoints(charm)}
    if application in CHARMS and colon and endpoint not in known and not PLACEHOLDER.fullmatch(endpoint):
        raise Wrong(f"{end}: expected one of {', '.join(sorted(known))}")


# -- scripts and tests -----------------------------------------------------------------------------


def check_script(words: list[str]) -> None:
    script = ROOT / words[0]
    if not script.is_file():
        raise Wrong("no such script")
    before = [*itertools.takewhile(lambda word: word != "--", words[1:])]
    if script.name == "test":
        check_tox(words[1:])
    known = "\n".join(path.read_text(encoding="utf-8") for path in sources(script))
    for word in before:
        option = word.partition("=")[0]
        if option.startswith("--") and option != "--help" and option not in known:
            raise Wrong(f"{option}: expected an option that {words[0]} knows")
    if script.name == "lab":
        asked = words[1 : 2 if words[1:2] == ["releases"] else 3]
        if not PLACEHOLDER.search(" ".join(asked)) and read_arguments(["lab", *asked, "--help"]) != HELPED:
            raise Wrong(f"{' '.join(asked)}: expected what {words[0]} starts")
    for option, value in itertools.pairwise(words):
        if option == "--set":
            check_key(value.partition("=")[0])


def sources(script: Path) -> Iterator[Path]:
    """A script, and what it calls."""
    yield script
    text = script.read_text(encoding="utf-8")
    for path in sorted({*re.findall(r"scripts/_\w+(?:\.py)?", text)}):
        found = ROOT / path
        yield from found.rglob("*.py") if found.is_dir() else [found] if found.is_file() else []
    if "read_arguments" in text:
        yield ROOT / "lab/arguments.py"
    for module in sorted({*re.findall(r"-m (lab[\w.]+)", text)}):
        found = ROOT / module.replace(".", "/")
        yield from found.rglob("*.py") if found.is_dir() else [found.with_suffix(".py")]


def check_tox(words: list[str]) -> None:
    known = environments()
    for option, value in itertools.pairwise(words):
        if option == "-e":
            for name in value.split(","):
                if name not in known and not PLACEHOLDER.fullmatch(name):
                    raise Wrong(f"-e {name}: expected one of {', '.join(sorted(known))}")
    check_tests(words)


def environments() -> set[str]:
    """The environments of tox.ini."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    found: set[str] = set()
    for section in tox.sections():
        name = section.partition("testenv:")[2]
        parts = [each.split(",") for each in re.split(r"[{}]", name)] if name else []
        found |= {"".join(chosen).strip() for chosen in itertools.product(*parts)} if parts else set()
    return found


def check_tests(words: list[str]) -> None:
    for word in words:
        if word.startswith(("tests/", "lab/", "scripts/")) and not PLACEHOLDER.search(word):
            path, _, test = word.partition("::")
            if not (ROOT / path).exists() and not [*ROOT.glob(path)]:
                raise Wrong(f"{path}: no such file")
            if test and test.partition("[")[0] not in (ROOT / path).read_text(encoding="utf-8"):
                raise Wrong(f"{test}: no such test")
    for option, module in itertools.pairwise(words):
        if option == "-m" and module.startswith(("tests.", "lab.", "scripts.", "tippingpoint")):
            path = ROOT / module.replace(".", "/")
            if not path.with_suffix(".py").is_file() and not path.is_dir():
                raise Wrong(f"{module}: no such module")


# -- the checks themselves -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "tippingpoint rum etcd-demo",
        "tippingpoint run etcd-dmo",
        "tippingpoint run etcd-demo --sat workload.units=5",
        "tippingpoint run etcd-demo --set workload.unit=5",
        "tippingpoint run my.yaml --set stages.0.holds=1m",
        "tippingpoint collect runs/RUN",
        "tippingpoint compare runs/RUN seed:juju-2.5.9",
        "./scripts/tset",
        "./scripts/pack --fro-python 3.11",
        "./scripts/lab up ectd",
        "juju run load-claimer/leader begin",
        "juju run load-claimer/leader start plann=juju-leases-small",
        "juju run load-claimer/leader start plan=juju-leases-smal",
        "juju config metrics-collector retentions=5d",
        "juju integrate load-claimer:scale-runs metrics-collector:scale-run",
        "tox -e units",
        "pytest tests/unit/plans",
        "python -m tests.browser.pictures",
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    """Given a page with a misspelt command, when it is checked, then the word is named."""
    (words,) = commands(f"Text:\n\n    {command}    # as it is\n")
    with pytest.raises(Wrong):
        check(words, whole=True)


@pytest.mark.parametrize(
    "command",
    [
        "tippingpoint run etcd-demo --set target.endpoints='[http://127.0.0.1:1]' | tee log",
        "tippingpoint run lxd-cluster-small --set target.credentials=FILE --set lab=SOCKET",
        "tippingpoint report runs/RUN --format html > report.html",
        'juju run --string-args load-claimer/leader start plan-yaml="$(cat plan.yaml)"',
        "juju run APP/leader status json=true",
        "juju integrate load-claimer:etcd etcd:db",
        "./scripts/lab up etcd --members 3",
    ],
)
def test_a_command_that_exists_is_accepted(command: str) -> None:
    ((words), *_) = commands(f"Text:\n\n    {command}\n")
    check(words, whole=True)
