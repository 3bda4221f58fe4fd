"""A real OpenStack control plane with fake hypervisors."""
