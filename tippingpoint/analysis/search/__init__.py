"""Searches for the load at which a target tips: interprets probes, chooses the next load, and gives the answer."""
