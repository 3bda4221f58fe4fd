"""What a run leaves in its directory: manifest, ledger, journals, and how they are read."""
