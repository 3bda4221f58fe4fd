"""The agent: the service that plays a unit's part of runs. A charm's hooks talk to it with `client.call`."""
