"""The Juju controller's API: connections, logins and facades."""
