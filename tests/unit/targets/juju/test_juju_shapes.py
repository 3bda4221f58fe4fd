"""The shape of a site's own model, from what `juju status --format json` prints."""

from __future__ import annotations

from typing import Any

import pytest

from tippingpoint.errors import UserError
from tippingpoint.targets.juju.shapes import shape_of

STATUS: dict[str, Any] = {
    "model": {"name": "production"},
    "applications": {
        "database": {
            "units": {
                "database/0": {"subordinates": {"logs/0": {}}},
                "database/1": {"subordinates": {"logs/1": {}}},
            },
            "relations": {
                "cluster": [{"related-application": "database", "interface": "peers", "scope": "global"}],
                "db": [{"related-application": "web", "interface": "sql", "scope": "global"}],
                "juju-info": [
                    {"related-application": "logs", "interface": "juju-info", "scope": "container"}
                ],
            },
        },
        "logs": {
            "subordinate-to": ["database"],
            "relations": {"info": [{"related-application": "database"}]},
        },
        "web": {
            "units": {"web/3": {}},
            "relations": {"db": ["database"], "proxy": [{"related-application": "elsewhere"}]},
        },
    },
}


def test_a_shape_has_units_and_relations_and_no_names() -> None:
    """Given a status with a peer, a subordinate and an application of another model, when it is read, then units of
    subordinates count, and relations are those between different applications of the model."""
    shape = shape_of(STATUS, "status.json")
    assert shape.applications == [2, 2, 1]
    assert shape.pairs == {(0, 1), (0, 2)}


@pytest.mark.parametrize("status", [{}, [], None, {"applications": {}}, {"applications": 3}])
def test_what_is_no_status_is_refused(status: object) -> None:
    """Given something else, when it is read, then one line names the file and what was expected."""
    with pytest.raises(UserError, match=r"^status.json: no applications: expected what `juju status"):
        shape_of(status, "status.json")


def test_a_model_that_is_too_large_is_refused() -> None:
    """Given a model with more units than one machine has here, when it is read, then the number is named."""
    units = {f"a/{number}": {} for number in range(1001)}
    with pytest.raises(UserError, match="1001 units: expected at most 1000"):
        shape_of({"applications": {"a": {"units": units}}}, "status.json")
