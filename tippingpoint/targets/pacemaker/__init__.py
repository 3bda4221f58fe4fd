"""The Pacemaker target: tickets and resources in the CIB of a cluster."""
