"""The target MAAS: machines are enlisted, commissioned, deployed, released and removed."""
