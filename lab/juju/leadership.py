"""The LeadershipService facade: claims, extensions and waiting for a release.

On a stock controller a unit may only claim the lease of its own application for itself. On a patched one
(`canClaim = true`, as in the published test) any unit may claim any lease for any holder.
"""

from __future__ import annotations

import re
from typing import Any

from lab.juju.leases import LONGEST_S, SHORTEST_S, Outcome
from lab.juju.methods import facade, method
from lab.juju.refusals import permission_denied
from lab.juju.rpc import Call

_UNIT = re.compile(r"unit-(?P<application>.+)-(?P<number>[0-9]+)")
_DENIED = {"error": {"message": "leadership claim denied", "code": "leadership claim denied"}}
_TIMED_OUT = {"error": {"message": "lease operation timed out", "code": ""}}
_RESULTS: dict[Outcome, dict[str, Any]] = {"ok": {}, "denied": _DENIED, "timed out": _TIMED_OUT}
_NOT_PERMITTED = {"error": permission_denied().as_dict()}
_INVALID_DURATION = {"error": {"message": "invalid duration", "code": ""}}

facade("LeadershipService", "unit")


@method("LeadershipService", "ClaimLeadership")
def _claim(call: Call) -> dict[str, Any] | None:
    claims: list[dict[str, Any]] = call.params["params"]
    results: list[dict[str, Any] | None] = [None] * len(claims)
    left = len(claims)
    at_once = True

    def answered(place: int, result: dict[str, Any]) -> None:
        nonlocal left
        results[place] = result
        left -= 1
        if not left and not at_once:
            call.answer({"results": results})

    for place, claim in enumerate(claims):
        _claim_one(call, claim, place, answered)
    at_once = False
    return None if left else {"results": results}


def _claim_one(call: Call, claim: dict[str, Any], place: int, answered: Any) -> None:
    application = str(claim["application-tag"]).removeprefix("application-")
    unit = _UNIT.fullmatch(str(claim["unit-tag"]))
    if unit is None or not str(claim["application-tag"]).startswith("application-"):
        answered(place, _NOT_PERMITTED)
        return
    duration: float = claim["duration"]
    if not SHORTEST_S <= duration <= LONGEST_S:
        answered(place, _INVALID_DURATION)
        return
    name = f"{unit['application']}/{unit['number']}"
    if not call.session.controller.setup.patched and (
        name != call.entity.id or application != unit["application"]
    ):
        answered(place, _NOT_PERMITTED)
        return
    call.model.leases.claim(application, name, duration, lambda outcome: answered(place, _RESULTS[outcome]))


@method("LeadershipService", "BlockUntilLeadershipReleased")
def _block(call: Call) -> dict[str, Any] | None:
    application = str(call.params.get("Name", ""))
    if not call.session.controller.setup.patched and application != call.entity.id.partition("/")[0]:
        return _NOT_PERMITTED
    key = object()

    def released() -> None:
        call.session.not_when_gone(key)
        call.answer({})

    call.session.when_gone(key, call.model.leases.block(application, released))
    return None
