"""The role of a nova-compute (forks.py): `be(HOST, [DIRECTORY])` is that of a host, with Nova's fake hypervisor.

DIRECTORY has nova.conf, and HOST.conf for each host.
"""

import importlib
import os
import sys

import nova.cmd.compute  # first: it makes eventlet of what others import
import nova.objects
from eventlet import hubs, patcher

NAME = "nova-compute"
read = patcher.original("os").read  # the other one would make a hub, which forks must not share
nova.objects.register_all()
for _name in (
    "nova.compute.manager",
    "nova.compute.resource_tracker",
    "nova.conductor.api",
    "nova.network.neutron",
    "nova.scheduler.client.report",
    "nova.virt.fake",
    "oslo_messaging._drivers.impl_rabbit",
):  # what each would import, were it not done once
    importlib.import_module(_name)


def be(host, arguments):
    """Be the nova-compute of a host, until killed."""
    hubs.use_hub()  # of its own: with the parent's epoll instance each would wake for all
    (directory,) = arguments
    files = [os.path.join(directory, name) for name in ("nova.conf", f"{host}.conf")]
    sys.argv = [NAME, *(f"--config-file={file}" for file in files)]
    nova.cmd.compute.main()
