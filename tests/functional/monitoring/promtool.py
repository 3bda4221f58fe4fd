"""Prometheus's own promtool, which says whether rules and queries are valid and what comes out of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.prometheus import find_promtool
from tests.functional.program import WITHIN_S


def check_rules(directory: Path, rules: Any) -> None:
    """Assert that these groups of rules are valid."""
    (directory / "checked.yaml").write_text(yaml.safe_dump(rules))
    _run(directory, "check", "rules", "checked.yaml")


def check_queries(directory: Path, queries: Sequence[str]) -> None:
    """Assert that these queries are valid."""
    assert queries
    made = [{"record": f"q:{number}", "expr": query} for number, query in enumerate(queries)]
    check_rules(directory, {"groups": [{"name": "q", "rules": made}]})


def try_rules(directory: Path, rules: Sequence[Any], tests: Sequence[Any], every: str = "15s") -> None:
    """Assert what comes out of these groups of rules, evaluated so often: `tests` are promtool's own unit tests."""
    files = [f"rules-{number}.yaml" for number in range(len(rules))]
    for name, groups in zip(files, rules, strict=True):
        (directory / name).write_text(yaml.safe_dump(groups))
    scenario = {"rule_files": files, "evaluation_interval": every, "tests": list(tests)}
    (directory / "test.yaml").write_text(yaml.safe_dump(scenario))
    _run(directory, "test", "rules", "test.yaml")


def _run(directory: Path, *command: str) -> None:
    ran = subprocess.run(
        [find_promtool(), *command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
