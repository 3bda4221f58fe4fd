"""Juju: leases, model growth, hollow units, and an API client made for tens of thousands of connections."""

OPTIONS = {"controller": "a controller in the juju client's store"}
"""The fields of its section for which `tippingpoint run` has an option of the same name, and the help of each."""
