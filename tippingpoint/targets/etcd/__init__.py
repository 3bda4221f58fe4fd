"""etcd: leases by its v2 and v3 APIs."""
