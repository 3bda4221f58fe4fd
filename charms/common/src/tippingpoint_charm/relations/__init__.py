"""The relations of the generator charms, one module each: `publish` is what we send, `read` what we understand.

Nothing in here raises on what others wrote, sets a status or logs; no secret is in what is sent.
"""

from __future__ import annotations

import ops

from tippingpoint_charm.relations import cos_agent, etcd, grafana, keystone, lxd, metrics, scale_run

__all__ = ["publish_all"]


def publish_all(charm: ops.CharmBase, *, port: int, projects: str = "") -> None:
    """Send on every relation that is there what it needs of us, but for runs (scale_run.publish); again is harmless.

    `port` is the exporter's, `projects` the configuration's lxd-projects.
    """
    lxd.publish(charm, projects)
    etcd.publish_client(charm)
    keystone.publish(charm)
    metrics.publish(charm, port)
    cos_agent.publish(charm, port)
    grafana.publish(charm)
    scale_run.publish_exporter(charm, port)
