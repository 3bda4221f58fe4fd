"""LXD, one server or a cluster: containers in projects, and a client of its API."""
