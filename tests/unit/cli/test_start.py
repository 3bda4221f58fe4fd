"""What a command that neither runs nor judges brings into memory: none of the libraries that runs and reports need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tippingpoint.cli.arguments import COMMANDS

HEAVY = ("aiohttp", "asyncio", "cryptography", "jinja2", "numpy", "orjson", "rich", "uvloop")
SCRIPT = """
import sys
from tippingpoint.cli.program import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & set(sys.argv[1].split())), file=sys.__stderr__)
"""


def loaded(*arguments: str, among: tuple[str, ...]) -> list[str]:
    """Which of these packages are in memory at the end of a command, in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, " ".join(among), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        *([command, "--help"] for command in COMMANDS),
        ["plans"],
        ["plans", "etcd-demo"],
        ["plans", "nothing"],
        ["baselines"],
        ["run"],
        ["run", "nothing"],
        ["nonsense"],
        ["compare", "a", "b", "--tolerance", "x"],
    ],
    ids=" ".join,
)
def test_a_command_that_neither_runs_nor_judges_starts_without_what_these_need(arguments: list[str]) -> None:
    assert loaded(*arguments, among=(*HEAVY, "pydantic")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["plans", "--schema"],
        ["baselines", "etcd3"],
        ["clean", "./nowhere"],
        ["run", "etcd-demo", "--set", "name=X"],
    ],
    ids=" ".join,
)
def test_what_reads_a_model_needs_pydantic_alone(arguments: list[str]) -> None:
    assert loaded(*arguments, among=(*HEAVY, "pydantic")) == ["pydantic"]


def test_a_run_brings_what_its_report_needs_only_when_its_workers_are_gone() -> None:
    script = "import sys; import tippingpoint.cli.run, tippingpoint.cli.running, tippingpoint.cli.resume\n"
    script += "print(*sorted({'numpy', 'jinja2', 'aiohttp'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_leases_by_the_v3_api_of_etcd_need_no_client_of_http_1() -> None:
    script = "import sys; from tippingpoint.plan.claim import ClaimWorkload\n"
    script += "from tippingpoint.targets.etcd.claim import Scope, connect\n"
    script += "from tippingpoint.targets.etcd.plan import EtcdTarget\n"
    script += "connect(EtcdTarget(kind='etcd', api=sys.argv[1]), ClaimWorkload(), Scope('a/', 0))\n"
    script += "print('aiohttp' in sys.modules)"
    by_api = {
        api: subprocess.run(
            [sys.executable, "-c", script, api], capture_output=True, text=True, check=True
        ).stdout.strip()
        for api in ("v2", "v3")
    }
    assert by_api == {"v2": "True", "v3": "False"}


def test_a_command_that_needs_numpy_starts_no_threads_for_it() -> None:
    script = "import os, sys; from tippingpoint.__main__ import main\n"
    script += "try:\n    main()\nexcept SystemExit:\n"
    script += "    print('numpy' in sys.modules, len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", script, "compare", "./nowhere", "./nothing"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "1"]
