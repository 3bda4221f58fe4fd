"""Whole runs in virtual time: the real engine, journals, report and `clean`, on a simulated target."""
