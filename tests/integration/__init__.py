"""The charms and the bundle on a real Juju, of whatever cloud: by hand, as no such thing is to be had everywhere.

One set of files, two environments: `./scripts/test -e integration` (pytest-operator, Juju 3) and
`./scripts/test -e integration-jubilant` (pytest-jubilant, Juju 3 and 4). Both take `-- --controller NAME`, and
`--charm-path DIR` where the packs are not in dist/. Nothing here needs the
internet, neither on this machine nor in the model.
"""
