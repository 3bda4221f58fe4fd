"""The tables of docs/reference/run-directory.md."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from scripts._reference.docstrings import attributes, summary
from scripts._reference.fields import keys_table
from scripts._reference.markdown import code, sentence, table
from tippingpoint.plan.packages import BUILT_IN, module_of
from tippingpoint.rundir.gathered import Unit
from tippingpoint.rundir.gauges import GAUGES, Gauges
from tippingpoint.rundir.manifest import Host, Manifest, Places, TargetEntry, WorkerEntry
from tippingpoint.rundir.resources import FigureData, Limit, Resources, Series

_LINKS = {
    "Host": "[host](#host)",
    "Places": "[places](#places)",
    "TargetEntry": "[target](#target)",
    "WorkerEntry": "[workers](#workers)",
    "FigureData": "[figures](#figures)",
    "Series": "[series](#series)",
    "Limit": "[limit](#limit)",
    **{f"{kind.capitalize()}Target": f"[target](plans.md#{kind})" for kind in BUILT_IN},
}
_MODELS: dict[str, type[BaseModel]] = {
    "manifest": Manifest,
    "manifest-host": Host,
    "manifest-places": Places,
    "manifest-target": TargetEntry,
    "manifest-workers": WorkerEntry,
    "unit-event": Unit,
    "resources": Resources,
    "resources-figures": FigureData,
    "resources-series": Series,
    "resources-limit": Limit,
}


def ledgers() -> str:
    """The ledger entry of each target."""
    parts: list[str] = []
    for kind in BUILT_IN:
        entry = module_of(kind, "ledger").ENTRY
        parts += [f"### Ledger of {kind}", "", sentence(summary(entry)), "", keys_table(entry, _LINKS), ""]
    return "\n".join(parts)


def gauges() -> str:
    """The gauges of a tick."""
    texts = attributes(Gauges)
    return table(["key", "meaning"], [[code(name), sentence(texts[name])] for name in GAUGES])


def _maker(model: type[BaseModel]) -> Callable[[], str]:
    return lambda: keys_table(model, _LINKS)


PARTS: dict[str, Callable[[], str]] = {
    **{name: _maker(model) for name, model in _MODELS.items()},
    "ledgers": ledgers,
    "gauges": gauges,
}
