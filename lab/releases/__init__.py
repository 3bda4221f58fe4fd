"""Other releases of a target than this machine's: the distribution's signed packages, unpacked and never installed.

`find` finds one by its suite or version, and fetches it the first time into .cache/releases. `python -m lab.releases`
lists what there is. The machine's own packages, lists and sources stay as they are, and no maintainer script runs.
"""
