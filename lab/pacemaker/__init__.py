"""A real Pacemaker on Corosync, private to whoever starts it: cluster.py is the lab."""
