"""The command lines of the scripts that start labs.

A script reads its arguments here before it fetches or installs anything, with the machine's own Python. So this module
and what it imports need no package:

    python3 -m lab.arguments lab up etcd --members 5    # accepted: prints nothing
    python3 -m lab.arguments lab up etcd --help         # prints help; exit code 100
    python3 -m lab.arguments lab up etcd --member 5     # prints one line; exit code 2
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from lab.control import LabError
from lab.releases.known import KNOWN, origins

HELPED = 100
"""The exit code of this program after it has printed help: the script then has nothing to do."""
BAD_ARGUMENT = 2
LARGEST = 1000
"""The most members of a lab. The limit catches slips of the hand; memory ends sooner."""
PROFILES = ("instant", "2.5.0", "2.5.1", "4.0", "plain", "retry-loop")
"""The cost profiles of the simulated Juju controller (lab/juju/store.py)."""
CERTIFICATES = ("valid", "expired", "other-name", "other-authority")
"""The certificates that the simulated Juju controller may show (lab/juju/tls.py)."""


class Parser(argparse.ArgumentParser):
    """A parser that refuses an argument in one line, as every command here does."""

    def __init__(self, prog: str, description: str, **settings: Any) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **settings,
        )

    def error(self, message: str) -> NoReturn:
        """Print the problem and where help is, and exit."""
        self.exit(BAD_ARGUMENT, f"{self.prog}: {message} ({self.prog} --help lists what is accepted)\n")


def lab_parser() -> Parser:
    """Return the parser of `./scripts/lab`."""
    parser = Parser(
        "lab",
        "Starts a lab, which is a private target on this machine, injects faults into it, or fetches releases.",
        epilog="Each command has its own help: ./scripts/lab up etcd --help",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    up = commands.add_parser(
        "up",
        prog="lab up",
        help="start a lab and print how to use it",
        description="Starts a lab and prints how to use it. Ctrl-C stops it and removes its data.",
        epilog="Each target has its own help: ./scripts/lab up etcd --help",
    )
    targets = up.add_subparsers(dest="target", metavar="TARGET", required=True)
    for name, (what, add) in _LABS.items():
        add(targets.add_parser(name, prog=f"lab up {name}", help=what, description=_sentence(what)))
    _add_releases(
        commands.add_parser(
            "releases",
            prog="lab releases",
            help="list the releases that labs can run, or fetch some",
            description="Lists the releases that --release and --rabbitmq accept, or fetches some into "
            ".cache/releases.\nNothing is installed.",
        )
    )
    _add_fault(
        commands.add_parser(
            "fault",
            prog="lab fault",
            help="inject a fault into a lab that is running",
            description=_FAULTS,
        )
    )
    return parser


def up_parser(target: str) -> Parser:
    """Return the parser of `./scripts/lab up TARGET`."""
    what, add = _LABS[target]
    parser = Parser(f"lab up {target}", _sentence(what))
    add(parser)
    return parser


def releases_parser() -> Parser:
    """Return the parser of `./scripts/lab releases`."""
    parser = Parser("lab releases", "Lists the releases that labs can run, or fetches some.")
    _add_releases(parser)
    return parser


def demo_parser() -> Parser:
    """Return the parser of `./scripts/demo`."""
    parser = Parser(
        "demo",
        "Loads a private cluster until it tips over, and prints the verdict and the path of the report (in ./runs).\n"
        "A Prometheus scrapes the members, so the report says which resource was exhausted.\n\n"
        "Without a target: leases on etcd, and then, as root, containers on LXD.\n"
        "lxd, incus and pacemaker need root, and install missing packages of Debian.",
        epilog="examples:\n  ./scripts/demo etcd --release 3.5\n  ./scripts/demo lxd --members 8",
    )
    parser.add_argument(
        "target",
        nargs="?",
        choices=("etcd", "lxd", "incus", "pacemaker"),
        metavar="TARGET",
        help="etcd, lxd, incus or pacemaker; both etcd and lxd if left out",
    )
    _add_count(parser, "--members", 3, "members of the cluster")
    parser.add_argument("--release", metavar="NAME", help="a suite or version, such as bookworm or 3.4")
    _add_run(parser)
    return parser


def versus_parser(script: str) -> Parser:
    """Return the parser of `./scripts/compare-etcd` or `./scripts/compare-brokers`."""
    parser = Parser(script, _VERSUS[script])
    parser.add_argument(
        "--plan", help="another plan than the usual one: a file, or the name of a shipped plan"
    )
    _add_run(parser)
    return parser


def compare_releases_parser() -> Parser:
    """Return the parser of `./scripts/compare-releases`."""
    parser = Parser(
        "compare-releases",
        "Runs one plan on several releases of a target in turns, three times each. The first release runs once more\n"
        "in each round, as a control. Prints the path of a page (in ./runs) that compares the releases.\n\n"
        "Each run has a private cluster of three members (an OpenStack has three computes) and a Prometheus that\n"
        "scrapes it. Releases are fetched into .cache/releases and never installed. `./scripts/lab releases` lists\n"
        "them. All targets but etcd need root.",
        epilog="example:\n  ./scripts/compare-releases etcd 3.4 3.5 --plan etcd-leases-small",
    )
    parser.add_argument(
        "target",
        choices=("etcd", "lxd", "incus", "openstack", "pacemaker"),
        metavar="TARGET",
        help="etcd, lxd, incus, openstack or pacemaker",
    )
    parser.add_argument(
        "releases", nargs="+", metavar="RELEASE", help="a suite or version, such as bookworm or 3.4"
    )
    parser.add_argument("--plan", required=True, help="a plan's file, or the name of a shipped plan")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each release (3)")
    parser.add_argument(
        "--hold",
        default="4s",
        metavar="TIME",
        help="the longest hold of a stage (4s): more repeats are worth more than longer holds",
    )
    parser.add_argument(
        "--cpu",
        type=float,
        metavar="CORES",
        help="limit each etcd member to this share of a core, so that other load on the machine matters less",
    )
    _add_run(parser)
    return parser


def deployer_parser() -> Parser:
    """Return the parser of `./scripts/export-deployer`."""
    parser = Parser(
        "export-deployer",
        "Prints bundles/scale.yaml and its overlays as one file in the format of juju-deployer (version 3, with\n"
        "`inherits`). A deployment is a series that the charms are packed for, with or without an overlay's name.\n\n"
        "This is for people who keep their clouds in such files. juju-deployer stops at Juju 2, which these charms\n"
        "do not support. `juju deploy` takes bundles/ itself.",
        epilog="examples:\n"
        "  ./scripts/export-deployer >clouds.yaml\n"
        "  juju-deployer -c clouds.yaml -d noble-lxd\n"
        "  ./scripts/export-deployer --cloud bundles/overlays/maas.yaml >maas.yaml\n"
        "  juju-deployer -c maas.yaml -d noble-etcd",
    )
    parser.add_argument(
        "--cloud", type=Path, metavar="FILE", help="an overlay that every deployment inherits from"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Read the arguments of a script, the first of which is its name; return the exit code."""
    script, *rest = arguments
    parser = _SCRIPTS[script]()
    if not rest and script in _NEEDS_ARGUMENTS:
        parser.print_help()
        return HELPED
    if script == "lab" and rest == ["up"]:
        rest = ["up", "--help"]
    try:
        options = parser.parse_args(rest)
        _check(parser, script, options)
    except SystemExit as ended:
        return HELPED if ended.code == 0 else BAD_ARGUMENT
    return 0


def _check(parser: Parser, script: str, options: argparse.Namespace) -> None:
    """Refuse what no parser sees by itself: a release that is unknown, and a demo of nothing with options."""
    target: str | None = getattr(options, "target", None)
    if script == "demo" and target is None and vars(options) != vars(parser.parse_args([])):
        parser.error("options without a target: expected etcd, lxd, incus or pacemaker first")
    try:
        for release in _releases(options):
            origins(target or "etcd", release)
        if getattr(options, "rabbitmq", None):
            origins("rabbitmq", options.rabbitmq)
    except LabError as problem:
        parser.error(str(problem))


def _releases(options: argparse.Namespace) -> list[str]:
    one = getattr(options, "release", None)
    return [one] if one else getattr(options, "releases", [])


def _add_etcd(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--members", 3, "members of the cluster")
    parser.add_argument("--tls", action="store_true", help="clients must present a certificate")
    parser.add_argument("--auth", action="store_true", help="clients must log in")
    parser.add_argument("--pprof", action="store_true", help="let runs take profiles of the members")
    parser.add_argument(
        "--feature-gates",
        metavar="NAME=BOOL,...",
        default="",
        help="features of etcd 3.6 or later to switch on or off, such as FastLeaseKeepAlive=false",
    )
    _add_release(parser, "bookworm, 3.4 or 3.6.16")
    _add_common(parser)


def _add_juju(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--servers", 1, "API servers of the controller")
    parser.add_argument(
        "--profile",
        default="instant",
        choices=PROFILES,
        metavar="NAME",
        help=f"what a commit of the store costs: {', '.join(PROFILES)} (instant)",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="N", help="one simulated lease stands for N leases (1)"
    )
    parser.add_argument("--patched", action="store_true", help="let any unit claim any lease")
    parser.add_argument(
        "--rate-limit",
        type=_rate_limit,
        metavar="MAX,SECONDS",
        help="limit the logins of agents, such as 10,0.25 (Juju's own limit); none if left out",
    )
    parser.add_argument(
        "--port", type=int, help="the port of every server, such as 17070; a free one if left out"
    )
    parser.add_argument(
        "--certificate", default="valid", choices=CERTIFICATES, help="the certificate it presents (valid)"
    )
    _add_common(parser, prometheus="none")


def _add_lxd(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--members", 3, "members of the cluster")
    _add_count(parser, "--most", 10, "members at most, including those that join later")
    parser.add_argument("--single", action="store_true", help="one server without a cluster")
    _add_release(parser, "trixie, 5.0.2 or 6.0.4")
    parser.add_argument("--product", choices=("lxd", "incus"), default="lxd", help=argparse.SUPPRESS)
    _add_common(parser)


def _add_maas(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machines", type=_natural, default=0, metavar="N", help="Ready machines at the start (0)"
    )
    _add_count(parser, "--racks", 1, "rack controllers")
    parser.add_argument("--hosts", type=_natural, default=0, metavar="N", help="VM hosts at the start (0)")
    parser.add_argument(
        "--tls", action="store_true", help="serve https, with a private certificate authority"
    )
    parser.add_argument(
        "--libvirt", action="store_true", help="add real virtual machines; needs root and installs libvirt"
    )
    for name, meaning in (
        ("commissioning", "how long commissioning takes"),
        ("deploying", "how long a deployment takes"),
        ("releasing", "how long a release takes"),
        ("power-timeout", "how long a request to a silent power controller takes to fail"),
        ("timeout", "how long a machine that does not boot takes to be marked as failed"),
    ):
        parser.add_argument(f"--{name}", type=_seconds, metavar="SECONDS", help=meaning)
    _add_common(parser)


def _add_openstack(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--computes", 4, "compute hosts, which are Nova's fake hypervisors")
    parser.add_argument(
        "--brokers",
        type=int,
        choices=(1, 2),
        default=1,
        help="message brokers: Nova and Neutron share one (1), or have one each (2)",
    )
    parser.add_argument("--tls", action="store_true", help="serve https, with a certificate of the lab's")
    _add_release(parser, "bullseye, 26 or 31 (the version of Nova)")
    parser.add_argument(
        "--rabbitmq", metavar="NAME", help="run another release of RabbitMQ: bullseye, 4.0, 4.3; needs root"
    )
    _add_common(parser, prometheus="on")


def _add_pacemaker(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--nodes", 3, "full nodes")
    parser.add_argument(
        "--remotes", type=_natural, default=0, metavar="M", help="nodes with pacemaker-remoted (0)"
    )
    _add_release(parser, "trixie or 3.0.0")
    parser.add_argument(
        "--property",
        dest="properties",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_property,
        help="a cluster property to start with, such as cluster-ipc-limit=20000; may be repeated",
    )
    parser.add_argument(
        "--token", type=int, default=1000, metavar="MS", help="Corosync's token timeout (1000)"
    )
    parser.add_argument("--tls", action="store_true", help="with certificates; needs Pacemaker 3")
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser, prometheus: str = "off") -> None:
    """Add the options of all labs. `prometheus` is the default, off or on, or `none` for a lab that exports nothing."""
    meaning = "also start a Prometheus that scrapes the lab every second"
    if prometheus == "on":
        parser.add_argument(
            "--prometheus", action=argparse.BooleanOptionalAction, default=True, help=f"{meaning} (it does)"
        )
    elif prometheus == "off":
        parser.add_argument("--prometheus", action="store_true", help=meaning)
    add_cpus(parser)
    parser.add_argument(
        "--how-to", action="store_true", help=argparse.SUPPRESS
    )  # instructions in place of JSON


def add_cpus(parser: argparse.ArgumentParser) -> None:
    """Add the option that splits the processors; `lab.places.take_places` reads its value."""
    parser.add_argument(
        "--cpus",
        metavar="N-M",
        help="the processors of the target, such as 1-3 (all but one in four); the load uses the others",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="change a field of the plan, such as stages.0.leases=500; may be repeated",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="where runs and reports go (./runs)"
    )
    add_cpus(parser)


def _add_release(parser: argparse.ArgumentParser, examples: str) -> None:
    parser.add_argument(
        "--release",
        metavar="NAME",
        help=f"run another release, such as {examples}; `./scripts/lab releases` lists them",
    )


def _add_count(parser: argparse.ArgumentParser, option: str, usual: int, meaning: str) -> None:
    parser.add_argument(option, type=_count, default=usual, metavar="N", help=f"{meaning} ({usual})")


def _add_releases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", choices=sorted(KNOWN), metavar="TARGET", help=", ".join(sorted(KNOWN))
    )
    parser.add_argument("releases", nargs="*", metavar="NAME", help="a suite or version to fetch")


def _add_fault(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        choices=("etcd", "juju", "lxd", "maas", "openstack", "pacemaker"),
        metavar="TARGET",
        help="etcd, juju, lxd (also for Incus), maas, openstack or pacemaker",
    )
    parser.add_argument(
        "socket", type=Path, metavar="SOCKET", help="the lab's control socket, which `up` prints"
    )
    parser.add_argument("request", metavar="JSON", help='such as \'{"do": "kill", "member": "m2"}\'')


def _count(text: str) -> int:
    return _number(text, 1)


def _natural(text: str) -> int:
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text}: expected {least} to {LARGEST}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds")
    return seconds


def _rate_limit(text: str) -> tuple[int, float]:
    most, _, seconds = text.partition(",")
    try:
        limit = int(most), float(seconds)
    except ValueError:
        limit = (0, 0.0)
    if limit[0] < 1 or not limit[1] > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected MAX,SECONDS, such as 10,0.25")
    return limit


def _property(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=VALUE")
    return name, value


def _setting(text: str) -> str:
    if not text.partition("=")[1]:
        raise argparse.ArgumentTypeError(f"{text}: expected KEY=VALUE")
    return text


def _sentence(what: str) -> str:
    return f"Starts {what}, and prints how to use it.\nCtrl-C stops it and removes its data."


_LABS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "etcd": ("a real etcd cluster", _add_etcd),
    "juju": ("a SIMULATED Juju controller", _add_juju),
    "lxd": ("a real LXD cluster (needs root)", _add_lxd),
    "incus": ("a real Incus cluster (needs root)", _add_lxd),
    "maas": ("a SIMULATED MAAS region", _add_maas),
    "openstack": ("a real OpenStack control plane with fake hypervisors", _add_openstack),
    "pacemaker": ("a real Pacemaker cluster on Corosync (needs root)", _add_pacemaker),
}
"""What each lab starts, and its options."""
_VERSUS = {
    "compare-etcd": (
        "Runs the same ramp of leases on etcd's API v2 and then on v3, each on a private 3-member cluster with a\n"
        "Prometheus that scrapes it. Prints the path of a page (in ./runs) that compares the two: latency, and CPU,\n"
        "memory, fsyncs and traffic of a member, by leases. Takes five minutes."
    ),
    "compare-brokers": (
        "Boots and deletes servers, with a port each, on a private OpenStack: a real control plane with Nova's fake\n"
        "hypervisor. Nova and Neutron first share one message broker, and then have one each. A Prometheus scrapes\n"
        "the brokers. Prints the path of a page (in ./runs) that compares the two: Rally's table, and messages,\n"
        "connections and memory of the brokers. Needs root. Takes seven minutes on two cores, because a server with\n"
        "a port costs the control plane four CPU-seconds."
    ),
}
_FAULTS = """Injects a fault into a running lab, and prints the lab's answer.

Every lab can kill, start, stop and continue a member: {"do": "kill", "member": "m2"}.
lxd and pacemaker can also partition and heal one.
juju, maas and pacemaker have more faults: lab/juju/control.py, lab/maas/control.py and
lab/pacemaker/verbs.py list them.
openstack also takes {"do": "slow", "member": "keystone", "seconds": 2} and {"do": "count"}."""
_SCRIPTS: dict[str, Callable[[], Parser]] = {
    "lab": lab_parser,
    "demo": demo_parser,
    "compare-etcd": lambda: versus_parser("compare-etcd"),
    "compare-brokers": lambda: versus_parser("compare-brokers"),
    "compare-releases": compare_releases_parser,
    "export-deployer": deployer_parser,
}
_NEEDS_ARGUMENTS = ("lab", "compare-releases")
"""Scripts that do nothing without arguments, and then print help."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
