"""The power types of the lab's machines, and the parameters that each needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from lab.maas.refusal import invalid, no_choice

POWER_TYPES: dict[str, tuple[str, ...]] = {
    "manual": (),
    "virsh": ("power_address", "power_id"),
    "lxd": ("power_address", "instance_name"),
    "webhook": ("power_on_uri", "power_off_uri", "power_query_uri"),
    "redfish": ("power_address", "power_user", "power_pass"),
    "ipmi": ("power_address",),
}
"""Each power type with its required parameters. The lab itself answers for every one; `manual` has no answer."""
_PREFIX = "power_parameters_"


class PowerProblem(Exception):
    """A power controller did not do what it was asked for. The message is one line, as MAAS words it.

    The words are those of get_error_message in src/provisioningserver/drivers/power/__init__.py.
    """


class PowerTimedOut(PowerProblem):
    """A power controller did not answer in time."""

    def __init__(self) -> None:
        super().__init__("Timed out")


def parameters_in(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the power parameters of a form: one JSON object, or a field for each."""
    found: dict[str, Any] = {}
    if given := fields.get("power_parameters"):
        try:
            parsed = json.loads(given)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise invalid("power_parameters", "Failed to parse JSON power_parameters")
        found |= cast(dict[str, Any], parsed)
    return found | {
        name.removeprefix(_PREFIX): value for name, value in fields.items() if name.startswith(_PREFIX)
    }


def check_power(power_type: str, parameters: Mapping[str, Any]) -> None:
    """Raise Refused for a power type that there is not, or one that lacks a parameter."""
    if power_type not in POWER_TYPES:
        raise no_choice("power_type", power_type, "power type", list(POWER_TYPES))
    for name in POWER_TYPES[power_type]:
        if not parameters.get(name):
            label = name.replace("_", " ").capitalize()
            raise invalid("power_parameters", f"{label}: This field is required.")


def described_power_types() -> list[dict[str, Any]]:
    """Return the answer to describe_power_types."""
    return [
        {
            "name": name,
            "description": name,
            "driver_type": "power",
            "missing_packages": [],
            "queryable": name != "manual",
            "fields": [
                {"name": field, "label": field, "required": True, "field_type": "string", "choices": []}
                for field in fields
            ],
        }
        for name, fields in POWER_TYPES.items()
    ]
