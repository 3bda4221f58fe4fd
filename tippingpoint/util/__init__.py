"""Helpers for every package: files, keys, durations, HTTP and text. They know nothing about load."""
