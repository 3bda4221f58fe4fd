"""The workspace of a run in etcd."""

from __future__ import annotations

from pydantic import BaseModel


class EtcdWorkspace(BaseModel):
    """Keys below a prefix, and v3 lease ids from a first number upwards."""

    prefix: str
    first_lease_id: int
