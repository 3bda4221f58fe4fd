"""Finds whether and when a target recovers from a fault, and from a load that was too much for it."""
