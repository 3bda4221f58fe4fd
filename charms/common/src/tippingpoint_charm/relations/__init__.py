"""The relations of the generator charms, one module each: `publish` is what we send, `read` what we understand.

Nothing in here raises on what others wrote, sets a status or logs; no secret is in what is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import ops

from tippingpoint_charm.relations import cos_agent, etcd, grafana, keystone, lxd, metrics, scale_run

__all__ = ["publish_all"]

logger = logging.getLogger(__name__)


def publish_all(charm: ops.CharmBase, *, port: int, projects: str = "") -> None:
    """Send on every relation that is there what it needs of us, but for runs (scale_run.publish); again is harmless.

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
        except ops.ModelError as refused:  # such as a secret that a relation which is gone cannot be granted
            logger.warning("relations: %s", refused)
