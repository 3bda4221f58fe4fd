"""A target of the claim workload that is simulated in this process: a lease service with a queue and a capacity."""
