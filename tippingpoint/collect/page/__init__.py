"""The web page of the collected runs."""
