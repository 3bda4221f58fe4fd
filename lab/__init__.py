"""Real targets on one machine, for the demo, the tests and by hand; a lab is private and ends with its starter.

    ./scripts/lab up etcd --members 3      # says how to run a plan on it; Ctrl-C ends it and removes its data

A folder has one target's lab: `etcd`, `juju` (a simulated controller, and it says so), `lxd`, `openstack`. Each is a
context manager and a program of its own, such as `with EtcdLab() as lab` and `python -m lab.etcd.cluster`.

Beside the folders is what several labs use:

- `program` and `tether`: a program that ends when told to, and whose processes go with it;
- `control` and `ask`: the socket by which members are killed, stopped, continued and started;
- `service`, `halt`, `cgroups`, `ports`, `certificates`: processes, their ends, and what they listen on;
- `prometheus`, `exporters`, `watched`, `recorded`, `rabbitmq`: what measures a lab, and a broker;
- `demo` and `versus`: what `./scripts/demo` and the scripts that compare run.

Nobody imports a lab but tests; a lab imports of the engine what its users call.
"""
