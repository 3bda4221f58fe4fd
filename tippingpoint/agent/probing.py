"""Times once each request that users make of the target: the figures that a person would get by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import section_of
from tippingpoint.plan.packages import kinds, kinds_where
from tippingpoint.rundir.ledger import Entry
from tippingpoint.targets.registry import target_of


async def probe(target: Mapping[str, Any], made: Entry | None = None) -> str:
    """Return a line for each request, such as `list 46 ms`; `made` lets it ask for things of a current run.

    Raises UserError or TargetError if the target cannot be asked.
    """
    kind = str(target.get("kind", ""))
    if kind not in kinds() or not target_of(kind).can_probe:
        known = kinds_where(lambda kind: target_of(kind).can_probe)
        raise UserError("target.kind", kind or "missing", f"one of {', '.join(known)}")
    try:
        section = section_of(kind).model_validate(dict(target))
    except ValidationError as problem:
        error = problem.errors(include_url=False, include_input=False)[0]
        field = ".".join(["target", *map(str, error["loc"])])
        raise UserError(field, "given", str(error["msg"]).removeprefix("Value error, ")) from None
    ours = made if made is not None and made.kind == kind else None
    return "\n".join(await target_of(kind).probe(section, ours))
