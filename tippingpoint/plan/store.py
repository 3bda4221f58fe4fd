"""The store workload in a plan: keys are written, read, watched and left to expire, at rates that the plan sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.after import After, check_after
from tippingpoint.plan.base import (
    MAX_STAGES,
    BaseStage,
    Rate,
    check_fault_times,
    check_operations,
    share_of,
)
from tippingpoint.plan.fields import PerSecond, Seconds, Section, as_amount, in_units
from tippingpoint.plan.find import BaseSearchPlan, FindBesideOthers, check_find
from tippingpoint.plan.kinds import ByKind, TargetSection
from tippingpoint.util.durations import format_duration

StoreOperation = Literal["put-new", "put", "get", "range", "txn-new", "txn", "txn-del", "del", "lease-grant"]
"""An operation that a mix may have a share of."""
MIXED: tuple[StoreOperation, ...] = get_args(StoreOperation)
STORE_OPERATIONS = (*MIXED, "watch", "watch-event", "expire")
"""The operations of the store workload.

`watch` lasts until a watcher is up, `watch-event` from the answer to the write until a watcher has the event, and
`expire` from the end of a key's lease until the key is gone.
"""
ON_KEYS = ("put", "get", "range", "txn", "txn-del", "del")
"""The operations of a mix that need existing keys."""

MAX_KEYS = 10_000_000
MAX_BYTES = 1_000_000
"""etcd refuses requests above 1.5 MiB (--max-request-bytes)."""

Keys = Annotated[int, Field(ge=0, le=MAX_KEYS, strict=True, json_schema_extra=in_units("keys"))]
Watchers = Annotated[int, Field(ge=0, le=1_000_000, strict=True, json_schema_extra=in_units("watchers"))]
Bytes = Annotated[int, Field(ge=1, le=MAX_BYTES, strict=True, json_schema_extra=in_units("bytes"))]


class StoreWorkload(Section, frozen=True):
    """Operations on keys are sent at a rate, by a mix. Watchers follow the keys, and leases run out with theirs."""

    kind: Literal["store"] = Field(description="The workload: `store`.")
    mix: dict[StoreOperation, Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]] = Field(
        default={"put": 1.0},
        description="The share of each operation, as weights. `put-new` puts a key that is not there, `put` "
        "overwrites one, `get` reads one, `range` lists a prefix, `del` deletes a key. `txn-new`, `txn` and `txn-del` "
        "create, update and delete a key where its revision is still the expected one, else they read it: then their "
        "outcome is `denied`, which is no failure. `lease-grant` grants a lease and puts its keys.",
    )
    prefixes: Annotated[int, Field(ge=1, le=10_000, strict=True, json_schema_extra=in_units("prefixes"))] = (
        Field(
            default=10,
            description="How many prefixes the keys are below. Each is written, listed and watched by one worker.",
        )
    )
    bytes: Bytes = Field(default=1000, description="The median size of a value.")
    bytes_p99: Bytes | None = Field(
        default=None,
        description="The 99th percentile of the sizes, which are log-normal then. Without it, all have one size.",
    )
    hot_keys: Rate = Field(default=0.1, description="The share of the keys that are hot.")
    hot_share: Rate = Field(
        default=0.0, description="The share of the operations that go to hot keys; the rest go to any key."
    )
    limit: Annotated[int, Field(ge=0, le=100_000, strict=True, json_schema_extra=in_units("keys"))] = Field(
        default=500, description="The most keys of one page of a `range`; 0 for all at once."
    )
    pages: Annotated[int, Field(ge=0, le=10_000, strict=True, json_schema_extra=in_units("pages"))] = Field(
        default=1,
        description="The most pages that a `range` goes on for, each at the revision of the first; 0 for all. Each "
        "page is timed by itself.",
    )
    serializable: Rate = Field(
        default=0.0,
        description="The share of `get` and `range` that any member answers by itself, perhaps with old values. The "
        "others, and the further pages of a `range`, are linearizable.",
    )
    lease_ttl: Seconds = Field(
        default=10.0, description="How long a lease of `lease-grant` lasts; whole seconds, at least 1s."
    )
    lease_keys: Annotated[int, Field(ge=1, le=100, strict=True, json_schema_extra=in_units("keys"))] = Field(
        default=1, description="How many keys are put with each lease."
    )
    relist: bool = Field(
        default=False,
        description="Whether a watcher lists its prefix in pages before it watches it, as an informer does. That is "
        "part of `watch`.",
    )
    since: Annotated[
        int, Field(ge=0, le=10_000_000, strict=True, json_schema_extra=in_units("revisions"))
    ] = Field(
        default=0,
        description="How many revisions ago a watcher's first event may be; 0 watches from now on.",
    )
    timeout: Seconds = Field(
        default=10.0, description="An operation that takes longer counts as a timeout; at least 10ms."
    )

    @model_validator(mode="after")
    def _sound(self) -> StoreWorkload:
        if not any(self.mix.values()):
            raise ValueError(
                f"mix: {self.mix or 'empty'}: expected at least one operation with a share above 0"
            )
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        if self.lease_ttl < 1 or not isclose(self.lease_ttl, round(self.lease_ttl)):
            raise ValueError(
                f"lease_ttl: {format_duration(self.lease_ttl)}: expected whole seconds, at least 1s"
            )
        if self.bytes_p99 is not None and self.bytes_p99 < self.bytes:
            raise ValueError(f"bytes_p99: {self.bytes_p99}: expected at least bytes ({self.bytes})")
        return self

    def shares(self) -> Mapping[StoreOperation, float]:
        """Return the operations of the mix with the share of each, from 0 to 1, in the order of MIXED."""
        whole = sum(self.mix.values())
        return {name: self.mix[name] / whole for name in MIXED if self.mix.get(name)}


_OPERATIONS = "How many operations of the mix are due per second in all."
_WATCHERS = "How many watchers there are in all, spread over the prefixes."
_KEYS = "How many keys are there when the stage begins. Putting or removing them is not timed."
_BYTES = "The median size of a value, instead of `workload.bytes`."
_EXPIRING = (
    "How many leases are granted per second, beside the mix, and left to run out `workload.lease_ttl` later."
)
Operations = Annotated[PerSecond, Field(json_schema_extra=in_units("operations per second"))]
Expiring = Annotated[PerSecond, Field(json_schema_extra=in_units("leases per second"))]


class StoreStage(BaseStage, frozen=True):
    """One step of load, brought up over a time, then held. It has at least one of `operations`, `watchers` and
    `expiring`."""

    operations: Operations | None = Field(default=None, description=_OPERATIONS)
    watchers: Watchers = Field(default=0, description=_WATCHERS)
    keys: Keys = Field(default=0, description=_KEYS)
    bytes: Bytes | None = Field(default=None, description=_BYTES)
    expiring: Expiring | None = Field(default=None, description=_EXPIRING)
    hold: Seconds = Field(default=30.0, description="How long the load is held once it is up.")
    over: Seconds = Field(
        default=5.0, description="The time over which new watchers are spread; 0s brings all up at once."
    )

    @property
    def rate(self) -> float:
        """The operations that are due per second: of the mix, and grants of leases that run out."""
        return (self.operations or 0.0) + (self.expiring or 0.0)


StoreLoad = Literal["operations", "watchers", "keys", "bytes", "expiring"]
STORE_LOADS: tuple[StoreLoad, ...] = get_args(StoreLoad)
_UNITS: dict[StoreLoad, str] = {
    "operations": "operations/s",
    "watchers": "watchers",
    "keys": "keys",
    "bytes": "bytes a value",
    "expiring": "expiring leases/s",
}


class StoreFind(FindBesideOthers, frozen=True):
    """A search over one load of the store workload, beside fixed amounts of the others."""

    loads = STORE_LOADS
    rates = frozenset({"operations", "expiring"})

    load: StoreLoad = Field(
        default="operations",
        description="Which load is searched: `operations` per second, `watchers`, `keys` that are there, `bytes` of a "
        "value (the median), or `expiring` leases per second.",
    )
    operations: Operations | None = Field(default=None, description=_OPERATIONS)
    watchers: Watchers | None = Field(default=None, description=_WATCHERS)
    keys: Keys | None = Field(default=None, description=_KEYS)
    bytes: Bytes | None = Field(default=None, description=_BYTES)
    expiring: Expiring | None = Field(default=None, description=_EXPIRING)
    over: Seconds = Field(
        default=5.0, description="The time over which new watchers are spread; 0s brings all up at once."
    )


class StorePlan(BaseSearchPlan, frozen=True):
    """A plan of the store workload."""

    is_held: ClassVar[bool] = True

    target: Annotated[TargetSection, ByKind("store")] = Field(
        description="The system under test. `kind` says which fields it has."
    )
    workload: StoreWorkload = Field(description="What is done to the target.")
    stages: Annotated[list[StoreStage], Field(max_length=MAX_STAGES)] = Field(
        default=[], description="The steps of load, in order. A plan has `stages` or `find`."
    )
    find: StoreFind | None = Field(
        default=None,
        description="A search for the largest load that meets the thresholds, instead of `stages`.",
    )
    after: After = None

    @property
    def load(self) -> StoreLoad:
        """Which load the plan varies: the searched one, or the first that differs between stages."""
        if self.find is not None:
            return self.find.load
        given = {name: {getattr(stage, name) for stage in self.stages} for name in STORE_LOADS}
        varied: list[StoreLoad] = [
            name for name in STORE_LOADS if None not in given[name] and len(given[name]) > 1
        ]
        first: list[StoreLoad] = ["operations", "expiring", "watchers"]
        there: list[StoreLoad] = [name for name in first if given[name] - {None, 0}]
        return (varied or there or first)[0]

    @property
    def load_unit(self) -> str:
        """The unit of the plan's loads."""
        return _UNITS[self.load]

    def load_of(self, stage: StoreStage, load: str = "") -> float:
        """Return a stage's load, counted in `load` or in what the plan varies."""
        load = load or self.load
        if load == "bytes":
            return stage.bytes or self.workload.bytes
        return as_amount(getattr(stage, load) or 0)

    @property
    def counted(self) -> Literal["watchers", "keys"]:
        """What exists while the load is held: watchers if the plan has any, else keys."""
        return "watchers" if any(stage.watchers for stage in self.planned) else "keys"

    def goal(self, stage: BaseStage) -> tuple[int, str]:
        """Return how many watchers or keys a stage has, and which of these are counted."""
        assert isinstance(stage, StoreStage)
        return getattr(stage, self.counted), self.counted

    @property
    def to_remove(self) -> int:
        """The most keys that are put before a stage."""
        return max(stage.keys for stage in self.planned)

    @property
    def most_workers(self) -> int:
        """As many as there are prefixes, because each has one worker."""
        return self.workload.prefixes

    def stage_at(self, load: float) -> StoreStage:
        """Return the stage with this load: a stage of the search, or one otherwise like the last listed stage."""
        find = self.find
        if find is None:
            like, name = self.stages[-1], self.load
        else:
            name = find.load
            like = StoreStage.model_construct(hold=find.hold, over=find.over, **find.fixed)
        if name in ("operations", "expiring"):
            return like.model_copy(update={name: load or None})
        return like.model_copy(update={name: round(load)})

    def listed_part(self, index: int, of: int) -> Self:
        """Return the part of a plan with stages for the unit with this index out of this many: prefixes of its own."""
        if of > self.workload.prefixes:
            raise UserError(
                "workload.prefixes",
                self.workload.prefixes,
                f"at least {of}, one for each unit of the generator",
            )
        prefixes = share_of(self.workload.prefixes, index, of)
        return self.model_copy(
            update={
                "workload": self.workload.model_copy(update={"prefixes": max(1, prefixes)}),
                "stages": [_stage_part(stage, index, of) for stage in self.stages],
            }
        )

    @property
    def patience(self) -> float:
        """Seconds without progress after which waiting for a load ends: the time limit of an operation."""
        return self.workload.timeout

    @property
    def planned(self) -> Sequence[StoreStage]:
        """The listed stages, or those of a search's first and largest load."""
        if self.find is None:
            return self.stages
        return [self.stage_at(self.find.start), self.stage_at(self.find.limit)]

    @property
    def operations(self) -> list[str]:
        """The operations that thresholds may name."""
        there = set(self.workload.shares() if any(stage.operations for stage in self.planned) else ())
        if any(stage.expiring for stage in self.planned):
            there.add("lease-grant")
        beside = {"lease-grant": ("expire",)}
        names = there.union(*(beside.get(name, ()) for name in there))
        if any(stage.watchers for stage in self.planned):
            names.update(("watch", "watch-event"))
        return [name for name in STORE_OPERATIONS if name in names]

    @model_validator(mode="after")
    def _whole(self) -> StorePlan:
        check_find(self.stages, self.find, self.thresholds, self.faults)
        self._check_stages()
        check_operations(self.thresholds, self.operations)
        check_operations(self.find.also if self.find is not None else [], self.operations, field="find.also")
        check_after(self.after, self.thresholds, self.operations, "")
        check_fault_times(self.faults, [stage.hold for stage in self.stages])
        self.target.check(self)
        return self

    def _check_stages(self) -> None:
        needs = next((name for name in ON_KEYS if self.workload.mix.get(name)), "")
        for number, stage in enumerate(self.planned):
            place = f"stages.{number}" if self.find is None else "find"
            if not (stage.rate or stage.watchers):
                raise ValueError(f"{place}.operations: missing: expected operations, watchers or expiring")
            if stage.operations and needs and not stage.keys:
                raise ValueError(f"{place}.keys: {stage.keys}: expected at least 1, as the mix has {needs}")


def _stage_part(stage: StoreStage, index: int, of: int) -> StoreStage:
    return stage.model_copy(
        update={
            "operations": stage.operations / of if stage.operations else None,
            "watchers": share_of(stage.watchers, index, of),
            "keys": share_of(stage.keys, index, of),
            "expiring": stage.expiring / of if stage.expiring else None,
        }
    )
