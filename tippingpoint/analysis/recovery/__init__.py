"""Finds out whether and when a target comes back: after a fault, and after the load that was too much for it."""
