"""Juju: leases, model growth, hollow units, and an API client made for tens of thousands of connections."""
