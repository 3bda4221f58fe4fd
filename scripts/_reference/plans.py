"""The tables of docs/reference/plans.md."""

from __future__ import annotations

from collections.abc import Callable

from scripts._reference.fields import plan_table
from scripts._reference.markdown import code, sentence, table
from tippingpoint.plan.base import Fault, Threshold
from tippingpoint.plan.claim import ClaimFind, ClaimPlan, ClaimWorkload, Stage, claim_operations
from tippingpoint.plan.cts import CTS_OPERATIONS, CtsPlan, CtsStage, CtsWorkload
from tippingpoint.plan.fields import Section
from tippingpoint.plan.grow import GROW_OPERATIONS, GrowFind, GrowPlan, GrowStage, GrowWorkload
from tippingpoint.plan.kinds import section_of
from tippingpoint.plan.operate import (
    OPERATE_OPERATIONS,
    ModelShape,
    OperateFind,
    OperatePlan,
    OperateStage,
    OperateWorkload,
)
from tippingpoint.plan.packages import BUILT_IN
from tippingpoint.plan.read import parse_plan
from tippingpoint.plan.shipped import shipped_plans
from tippingpoint.plan.spawn import SpawnFind, SpawnPlan, SpawnStage, SpawnWorkload, spawn_operations
from tippingpoint.plan.store import STORE_OPERATIONS, StoreFind, StorePlan, StoreStage, StoreWorkload

_LINKS = {
    "Threshold": "[thresholds](#thresholds)",
    "Fault": "[faults](#faults)",
    "ClaimFind": "[find](#find-of-claim)",
    "SpawnFind": "[find](#find-of-spawn)",
    "GrowFind": "[find](#find-of-grow)",
    "StoreFind": "[find](#find-of-store)",
    "OperateFind": "[find](#find-of-operate)",
    "ClaimWorkload": "[workload](#workload-claim)",
    "SpawnWorkload": "[workload](#workload-spawn)",
    "GrowWorkload": "[workload](#workload-grow)",
    "CtsWorkload": "[workload](#workload-cts)",
    "StoreWorkload": "[workload](#workload-store)",
    "OperateWorkload": "[workload](#workload-operate)",
    "ModelShape": "[shapes](#shapes-of-operate)",
    "Stage": "[stages](#stages-of-claim)",
    "SpawnStage": "[stages](#stages-of-spawn)",
    "GrowStage": "[stages](#stages-of-grow)",
    "CtsStage": "[stages](#stages-of-cts)",
    "StoreStage": "[stages](#stages-of-store)",
    "OperateStage": "[stages](#stages-of-operate)",
}
_MODELS: dict[str, type[Section]] = {
    "workload-claim": ClaimWorkload,
    "stages-claim": Stage,
    "find-claim": ClaimFind,
    "workload-spawn": SpawnWorkload,
    "stages-spawn": SpawnStage,
    "find-spawn": SpawnFind,
    "workload-grow": GrowWorkload,
    "workload-cts": CtsWorkload,
    "stages-grow": GrowStage,
    "find-grow": GrowFind,
    "stages-cts": CtsStage,
    "workload-store": StoreWorkload,
    "stages-store": StoreStage,
    "find-store": StoreFind,
    "workload-operate": OperateWorkload,
    "shapes-operate": ModelShape,
    "stages-operate": OperateStage,
    "find-operate": OperateFind,
    "thresholds": Threshold,
    "faults": Fault,
}


def plan() -> str:
    """The fields of a plan. Only the types of its workload and stages depend on the workload."""
    links = {
        **_LINKS,
        "oneOf": "[target](#targets)",
        "ClaimWorkload": f"{_LINKS['ClaimWorkload']} of claim, {_LINKS['SpawnWorkload']} of spawn, "
        f"{_LINKS['GrowWorkload']} of grow, {_LINKS['CtsWorkload']} of cts, {_LINKS['StoreWorkload']} of store or "
        f"{_LINKS['OperateWorkload']} of operate",
        "Stage": f"{_LINKS['Stage']} of claim, {_LINKS['SpawnStage']} of spawn, {_LINKS['GrowStage']} of grow, "
        f"{_LINKS['CtsStage']} of cts, {_LINKS['StoreStage']} of store or {_LINKS['OperateStage']} of operate",
        "ClaimFind": f"{_LINKS['ClaimFind']} of claim, {_LINKS['SpawnFind']} of spawn, {_LINKS['GrowFind']} of grow, "
        f"{_LINKS['StoreFind']} of store or {_LINKS['OperateFind']} of operate",
    }
    others = SpawnPlan, GrowPlan, CtsPlan, StorePlan, OperatePlan
    assert {name for other in others for name in other.model_fields} <= {*ClaimPlan.model_fields}
    return plan_table(ClaimPlan, links, ("name", "description", "target", "workload", "stages", "find"))


def targets() -> str:
    """The fields of each target, with the workloads that it supports."""
    parts: list[str] = []
    for kind in BUILT_IN:
        section = section_of(kind)
        workloads = ", ".join(map(code, section.plans))
        parts += [
            f"### {kind}",
            "",
            sentence(section.__doc__ or ""),
            f"Workloads: {workloads}.",
            "",
            plan_table(section, _LINKS),
            "",
        ]
    return "\n".join(parts)


def operations() -> str:
    """The operations that a threshold may name, by workload and target."""
    rows: list[list[str]] = []
    for kind in BUILT_IN:
        section = section_of(kind)
        for workload in section.plans:
            if workload == "claim":
                names = tuple(claim_operations(section))
            else:
                of = {
                    "grow": GROW_OPERATIONS,
                    "cts": CTS_OPERATIONS,
                    "store": STORE_OPERATIONS,
                    "operate": OPERATE_OPERATIONS,
                }
                names = spawn_operations(section) if workload == "spawn" else of[workload]
            rows.append([code(kind), code(workload), ", ".join(map(code, names))])
    return table(["target", "workload", "operations"], rows)


def shipped() -> str:
    """The shipped plans."""
    rows: list[list[str]] = []
    for name, text in shipped_plans().items():
        plan = parse_plan(text, source=name)
        rows.append(
            [code(name), code(plan.target.kind), code(plan.workload.kind), sentence(plan.description)]
        )
    return table(["plan", "target", "workload", "what it does"], rows)


def _maker(model: type[Section]) -> Callable[[], str]:
    return lambda: plan_table(model, _LINKS)


PARTS: dict[str, Callable[[], str]] = {
    "plan": plan,
    **{name: _maker(model) for name, model in _MODELS.items()},
    "targets": targets,
    "operations": operations,
    "shipped-plans": shipped,
}
