"""`tippingpoint run`: run a plan."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tippingpoint.errors import UserError
from tippingpoint.plan.defaults import defaults_of, read_defaults
from tippingpoint.plan.packages import options as target_options
from tippingpoint.plan.shipped import plan_text, shipped_plans
from tippingpoint.util.importing import importing
from tippingpoint.util.inputs import kept_in_memory

if TYPE_CHECKING:
    from tippingpoint.plan.read import Plan


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    plan = asked_plan(options)
    with importing():
        from tippingpoint.cli.running import run_to_report

    return run_to_report(plan, options, None)


def asked_plan(options: argparse.Namespace) -> Plan:
    """Return the plan that a command names, on the target that its options or the defaults name.

    Raises UserError for an invalid plan.
    """
    text = plan_text(options.plan)  # a missing plan is refused before anything large is imported
    with importing():
        from tippingpoint.plan.read import parse_plan

    options.overrides = [*_default_target(text, options), *options.overrides]
    plan = parse_plan(text, options.overrides, options.plan)
    for option, (kind, _) in target_options().items():
        name = getattr(options, option)
        if name is not None:
            if plan.target.kind != kind:
                raise UserError(f"--{option}", name, f"a plan whose target is {kind}")
            options.overrides.append(f"target.{option}={json.dumps(name)}")
            plan = parse_plan(text, options.overrides, options.plan)
    return _with_files(plan)


def _default_target(text: str, options: argparse.Namespace) -> Sequence[str]:
    """Return the plan's fields that a lab's file sets; none if the command itself names a target or a lab."""
    defaults = read_defaults()
    if defaults is None or any(getattr(options, option) is not None for option in target_options()):
        return []
    named = {override.partition("=")[0] for override in options.overrides}
    if named & {"target.kind", *defaults.settings}:
        return []
    from tippingpoint.plan.read import read_yaml

    try:
        fields = read_yaml(text)
    except ValueError:  # it is refused later, by the parser
        return []
    found = defaults_of(defaults, fields, shipped=shipped_plans().get(options.plan) == text)
    if found:
        print(f"tippingpoint: on the {defaults.kind} of {defaults.file}", file=sys.stderr)
    return found


def _with_files(plan: Plan) -> Plan:
    """The plan with files in memory instead of pipes, such as `target.credentials=/dev/stdin`.

    They are read by this process, by each worker, and once more when the run's things are removed.
    """
    kept: dict[str, Path] = {}
    for name, value in plan.target:
        if isinstance(value, Path):
            try:
                kept[name] = kept_in_memory(value)
            except OSError as problem:
                accepted = f"a readable file or pipe ({problem.strerror})"
                raise UserError(f"target.{name}", str(value), accepted) from None
    changed = {name: path for name, path in kept.items() if path != getattr(plan.target, name)}
    return plan.model_copy(update={"target": plan.target.model_copy(update=changed)}) if changed else plan
