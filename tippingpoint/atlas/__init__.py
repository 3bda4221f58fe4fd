"""The atlas: what was measured of each release, kept as entries that anybody can check, render and add to."""
