"""Loads the profile of hypothesis that all tests use: no example has to be quick, as other work slows test machines."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
