"""A simulated Juju controller."""
