"""Runs of many units: the messages between them, and how their parts become one run."""
