"""Trends of runs over releases or time: where their figures changed, and what changed with them."""
