"""A real etcd cluster."""
