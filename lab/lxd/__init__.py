"""A real LXD cluster."""
