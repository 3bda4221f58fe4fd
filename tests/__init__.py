"""The suite's own tests. What they run on is in `lab`."""
