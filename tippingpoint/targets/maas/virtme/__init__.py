"""Machines that a run makes with libvirt on its own server, as the charm virtme did in 2013."""
