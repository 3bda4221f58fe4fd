"""Executes a plan, up to closed journals: the runner, its workers, faults, search and cleaning."""
