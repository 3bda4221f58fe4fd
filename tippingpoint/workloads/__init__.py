"""The load on a target: the workloads claim and spawn, and what each needs of a target."""
