"""Private, real targets on one machine, for the demo, the tests and by hand. A lab ends with its starter.

    ./scripts/lab up etcd --members 3      # prints how to run a plan on it; Ctrl-C ends it and removes its data

Each folder has the lab of one target: `etcd`, `juju` (a simulated controller, which says so), `lxd`,
`maas` (a simulated region, which says so too), `openstack`, `pacemaker`.
A lab is a context manager and a program, such as `with EtcdLab() as lab` and `python -m lab.etcd.cluster`.

The modules beside the folders are shared by several labs:

- `arguments` reads the command lines of scripts, before anything is fetched.

- `up`, `program` and `tether` run a lab as a program whose processes end with it.

- `control` and `ask` are the socket by which members are killed, stopped, continued and started.

- `service`, `halt`, `cgroups`, `ports` and `certificates` manage processes and what they listen on.

- `prometheus`, `exporters`, `watched` and `recorded` measure a lab; `rabbitmq` is a broker.

- `demo` and `versus` are the programs behind `./scripts/demo` and the scripts that compare.

Only tests and scripts import a lab. A lab uses the engine as its users do.
"""
