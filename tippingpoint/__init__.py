"""Finds where a cloud's control plane tips over."""

__version__ = "0.1.0"
