"""What a target's users ask it for, timed now, each once: the figures a person would try by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.ledger import Entry, JujuEntry, LxdEntry
from tippingpoint.plan_targets import JujuTarget, LxdTarget

_TARGETS: dict[str, TypeAdapter[Any]] = {"lxd": TypeAdapter(LxdTarget), "juju": TypeAdapter(JujuTarget)}


async def probe(target: Mapping[str, Any], made: Entry | None = None) -> str:
    """A line for each thing asked for, such as `list 46 ms`, of the run's own things where one goes on that made some.

    UserError or TargetError where nobody can be asked.
    """
    kind = str(target.get("kind", ""))
    if kind not in _TARGETS:
        raise UserError("target.kind", kind or "missing", f"one of {', '.join(_TARGETS)}")
    try:
        access = _TARGETS[kind].validate_python(dict(target))
    except ValidationError as problem:
        error = problem.errors(include_url=False, include_input=False)[0]
        field = ".".join(["target", *map(str, error["loc"])])
        raise UserError(field, "given", str(error["msg"]).removeprefix("Value error, ")) from None
    if kind == "lxd":
        return "\n".join(await _probe_lxd(access, made.prefix if isinstance(made, LxdEntry) else ""))
    model = made.model if isinstance(made, JujuEntry) else access.model
    return "\n".join(await _probe_juju(access, model))


async def _probe_lxd(target: LxdTarget, prefix: str) -> list[str]:
    from tippingpoint.spawn.probe import probe

    return [
        f"{probed.name} {probed.ms:.0f} ms" if probed.ms is not None else f"{probed.name}: {probed.why}"
        for probed in await probe(target, prefix)
    ]


async def _probe_juju(target: JujuTarget, model: str | None) -> list[str]:
    from tippingpoint.juju.access import from_file, from_store, store_directory
    from tippingpoint.juju.client import ApiClient
    from tippingpoint.juju.hollow import find_model
    from tippingpoint.juju.model import ModelAdmin

    if target.credentials is not None:
        access = from_file(target.credentials)
    else:
        access = from_store(target.controller, store_directory())
    if not model:
        raise UserError("target.model", "missing", "a run that goes on, or the name of a model to ask for")
    client = ApiClient(access.addresses, access.ca)
    try:
        uuid = await find_model(access, model)
        begun = time.monotonic()
        admin = await ModelAdmin.open(client, access, uuid)
        connected = time.monotonic()
        await admin.full_status()
        listed = time.monotonic()
    except OperationFailed as problem:
        raise TargetError(access.controller_name, str(problem), "a controller that answers") from None
    finally:
        await client.close()
    return [f"connect {(connected - begun) * 1e3:.0f} ms", f"full-status {(listed - connected) * 1e3:.0f} ms"]
