"""Carries a run's turns out on one machine, up to closed journals: the runner, its workers, faults and cleaning."""
