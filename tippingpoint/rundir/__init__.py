"""The files of a run's directory: manifest, ledger and journals, and how they are read."""
