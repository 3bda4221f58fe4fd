"""From a plan to closed journals: the runner, its workers, faults, search and cleaning."""
