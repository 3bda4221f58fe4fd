"""LXD, one server or a cluster: containers in projects, and a client of its API."""

OPTIONS = {"remote": "a remote in the lxc client's configuration"}
"""The fields of its section for which `tippingpoint run` has an option of the same name, and the help of each."""
