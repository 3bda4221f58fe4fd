"""The Juju controller's API: connections, log-ins and facades."""
