"""Results of other tools, read into a run's directory."""
