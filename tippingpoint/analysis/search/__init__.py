"""Searches for the load at which a target tips: what probes say of it, which load is next, and the answer."""
