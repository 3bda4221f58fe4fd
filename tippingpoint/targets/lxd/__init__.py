"""A client of the LXD API, for one server or a cluster of them; it knows nothing of workloads."""
