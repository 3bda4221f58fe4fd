"""Decides whether operations of a stage waited mostly because the target's rate limit refused them."""

from __future__ import annotations

from tippingpoint.rundir.stages import StageResult

_MOST = 0.5


def waited_for_rate_limit(stage: StageResult, operation: str, percentile: float | None = None) -> bool:
    """Return whether most of an operation's response time was spent between refusals by the target's rate limit.

    A refused call is tried again, and its response time counts from the first attempt. The service time is that of the
    attempt that succeeded, so the rest was waiting. With a `percentile` (0 to 100), the time at that percentile is
    compared, if enough calls were refused to explain all times at or above it. Without one, the sum of all times is
    compared.
    """
    refused, response, service = (
        stage.count(operation, "limited"),
        stage.response(operation),
        stage.service(operation),
    )
    if not refused or not response.total or not service.total:
        return False
    if percentile is None:
        return service.mean < _MOST * response.mean
    explained = refused >= (1 - percentile / 100) * response.total
    return explained and service.percentile(percentile) < _MOST * response.percentile(percentile)
