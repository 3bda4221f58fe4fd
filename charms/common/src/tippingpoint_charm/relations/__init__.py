"""The relations of the charms, one module each: `publish` sends data, and `read` reads the other side's.

Wrong data of others raise nothing but NotThere. No module sets a status or sends a secret's content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import ops

from tippingpoint_charm.relations import cos_agent, etcd, grafana, keystone, lxd, metrics, scale_run
from tippingpoint_charm.relations.databag import reason

logger = logging.getLogger(__name__)


def publish_all(charm: ops.CharmBase, *, port: int, projects: str = "") -> None:
    """Send what every existing relation needs, except runs (scale_run.publish). Repeating it is harmless.

    `port` is the exporter's, `projects` the configuration's lxd-projects.
    """
    publishers: tuple[Callable[[], None], ...] = (
        lambda: lxd.publish(charm, projects),
        lambda: etcd.publish_client(charm),
        lambda: keystone.publish(charm),
        lambda: metrics.publish(charm, port),
        lambda: cos_agent.publish(charm, port),
        lambda: grafana.publish(charm),
        lambda: scale_run.publish_exporter(charm, port),
    )
    for publish in publishers:
        try:
            publish()
        except ops.ModelError as refused:  # such as a secret granted to a relation that was removed
            logger.warning("relations: %s", reason(refused))
