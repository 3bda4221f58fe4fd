"""`tippingpoint baselines`: the published results."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from tippingpoint.cli.listing import print_list
from tippingpoint.compare.baseline_texts import PREFIX, baseline_texts
from tippingpoint.util.exit_codes import MET
from tippingpoint.util.fast_yaml import field_of


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if options.name is not None or options.json:
        documents = _documents(options.name)
        found = documents if options.name is None else documents[0]
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        rows = [(PREFIX + name, field_of(text, "title")) for name, text in baseline_texts().items()]
        print_list(("baseline", "what was published"), rows)
    return MET


def _documents(name: str | None) -> Sequence[Any]:
    """The baseline of this name as JSON, or all of them."""
    from tippingpoint.compare.baselines import list_baselines, load_baseline

    found = list_baselines() if name is None else [load_baseline(name)]
    return [json.loads(baseline.model_dump_json(exclude_none=True)) for baseline in found]
