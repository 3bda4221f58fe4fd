"""A SIMULATED MAAS region, built from a real region's description of its API: see region.py and simulator.py."""
