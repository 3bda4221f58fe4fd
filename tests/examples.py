"""How hypothesis tries a test whose examples all use the same fixtures."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def examples(number: int) -> settings:
    """Try so many, which share the test's fixtures. All else is as the profile of tests/conftest.py says."""
    suppressed = [*settings().suppress_health_check, HealthCheck.function_scoped_fixture]
    return settings(max_examples=number, suppress_health_check=suppressed)
