"""What the integration tests have: a model's `juju`, the packs, who we are at the controller, and what it held."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jubilant
import pytest

from tests.integration.packs import find_packs
from tests.integration.target import Target

_ROOT = Path(__file__).parents[2]
_REPORTED = pytest.StashKey[bool]()
logging.getLogger("jubilant").setLevel("WARNING")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """pytest-operator has `--controller` of its own, with the same meaning."""
    group = parser.getgroup("tippingpoint")
    group.addoption(
        "--charm-path",
        type=Path,
        default=_ROOT / "dist",
        metavar="DIR",
        help="where ./scripts/pack put the charms",
    )
    if not pluginmanager.hasplugin("pytest-operator"):
        group.addoption(
            "--controller", metavar="NAME", help="the Juju controller; the current one when left out"
        )


def pytest_configure(config: pytest.Config) -> None:
    """To pytest-jubilant the controller's option has another name."""
    if config.pluginmanager.hasplugin("pytest-jubilant") and config.getoption("--controller"):
        config.option.juju_controller = config.getoption("--controller")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """A failure shows what Juju thought of it all; what follows in the same file builds on it and is not tried."""
    report = yield
    if report.when != "teardown" and report.failed:
        item.parent.stash[_REPORTED] = True
        juju = item.funcargs.get("juju")
        if isinstance(juju, jubilant.Juju):
            for arguments in (["status", "--relations"], ["debug-log", "--no-tail", "--limit", "80"]):
                report.sections.append((f"juju {arguments[0]}", _told(juju, arguments)))
    return report


def _told(juju: jubilant.Juju, arguments: list[str]) -> str:
    try:
        return juju.cli(*arguments)
    except jubilant.CLIError as problem:
        return f"not known: {problem.stderr}"


@pytest.fixture(autouse=True)
def _only_after_what_it_builds_on(request: pytest.FixtureRequest) -> None:
    if request.node.parent.stash.get(_REPORTED, False):
        pytest.skip("what this builds on failed")


if importlib.util.find_spec("pytest_operator"):

    @pytest.fixture(scope="module")
    def juju(ops_test: Any) -> jubilant.Juju:
        """A model of its own for each file; pytest-jubilant has a fixture of this name."""
        return jubilant.Juju(model=ops_test.model_full_name)


@pytest.fixture(scope="session")
def packs(request: pytest.FixtureRequest) -> dict[str, Path]:
    """The three charms' packs by their names."""
    return find_packs(request.config.getoption("--charm-path"))


@pytest.fixture(scope="module")
def target(juju: jubilant.Juju) -> Target:
    """The very controller that the charms are on."""
    return Target(juju)
