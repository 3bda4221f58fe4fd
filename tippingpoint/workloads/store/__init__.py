"""The store workload: keys are written, read, watched and left to expire."""
