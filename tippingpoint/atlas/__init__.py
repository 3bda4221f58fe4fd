"""The atlas: measurements of each release, kept as entries that anybody can check, render and add to."""
