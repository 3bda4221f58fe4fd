"""Runs nova-compute with Nova's fake hypervisor (see forks.py): `be(HOST, [DIRECTORY])` is the compute of a host.

DIRECTORY has nova.conf, and HOST.conf for each host.
"""

import importlib
import os
import sys

import nova.cmd.compute  # first, because it patches modules for eventlet
import nova.objects
from eventlet import hubs, patcher

NAME = "nova-compute"
read = patcher.original("os").read  # the patched one would make a hub, which forks must not share
nova.objects.register_all()
for _name in (
    "nova.compute.manager",
    "nova.compute.resource_tracker",
    "nova.conductor.api",
    "nova.network.neutron",
    "nova.scheduler.client.report",
    "nova.virt.fake",
    "oslo_messaging._drivers.impl_rabbit",
):  # imported once here instead of in each fork
    importlib.import_module(_name)


def be(host, arguments):
    """Run as the nova-compute of a host, until killed."""
    hubs.use_hub()  # of its own: with the parent's epoll instance each would wake for all
    (directory,) = arguments
    files = [os.path.join(directory, name) for name in ("nova.conf", f"{host}.conf")]
    sys.argv = [NAME, *(f"--config-file={file}" for file in files)]
    nova.cmd.compute.main()
