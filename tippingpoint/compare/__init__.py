"""Runs side by side: where each tips, at what price, and how each operation differs."""
