"""Leases that are claimed, renewed and fought over."""
