"""What the workers of a run find ready in an etcd."""

from __future__ import annotations

from pydantic import BaseModel


class EtcdWorkspace(BaseModel):
    """Keys below a prefix, and v3 lease ids from a number on."""

    prefix: str
    first_lease_id: int
