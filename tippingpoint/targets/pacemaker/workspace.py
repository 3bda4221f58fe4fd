"""The workspace of a run in a Pacemaker cluster."""

from __future__ import annotations

from pydantic import BaseModel


class PacemakerWorkspace(BaseModel):
    """Ids in the CIB that begin with a prefix and a hyphen."""

    prefix: str
