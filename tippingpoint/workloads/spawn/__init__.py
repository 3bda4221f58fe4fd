"""The spawn workload: things that are made, listed and removed, each call timed."""
