"""The claim workload: leases are claimed, renewed and contended for."""
