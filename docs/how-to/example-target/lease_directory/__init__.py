"""A target of the claim workload: a directory in which a lease is a file."""
