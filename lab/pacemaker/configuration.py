"""What configures the nodes of a Pacemaker lab: corosync.conf, the first CIB, the password, and PAM's service."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

USER = "hacluster"
"""The only user whose password Pacemaker's daemon can check, as it runs as that user."""
TLS_PORT = 9898
PAM_SERVICE = "tippingpoint"
"""A service of its own: `login` delays a wrong password, and blocks the node's CIB daemon meanwhile."""


def corosync_conf(addresses: Sequence[str], names: Sequence[str], token_ms: int) -> str:
    """corosync.conf for nodes of these names; node N has the id N. No real-time priority: labs share a machine."""
    quorum = "    two_node: 1\n    wait_for_all: 0\n" if len(names) == 2 else ""
    nodes = "".join(
        f"    node {{\n        ring0_addr: {address}\n        name: {name}\n        nodeid: {number}\n    }}\n"
        for number, (address, name) in enumerate(zip(addresses, names, strict=True), 1)
    )
    return f"""totem {{
    version: 2
    cluster_name: tippingpoint
    transport: knet
    crypto_cipher: none
    crypto_hash: none
    token: {token_ms}
}}
system {{
    sched_rr: no
    move_to_root_cgroup: no
}}
quorum {{
    provider: corosync_votequorum
{quorum}}}
logging {{
    to_stderr: yes
    to_syslog: no
    to_logfile: no
    timestamp: hires
}}
nodelist {{
{nodes}}}
"""


def first_cib(properties: Mapping[str, str], resources: str) -> str:
    """The CIB that nodes start with.

    `dc-deadtime` of 2 s elects the first DC at once. `stonith-max-attempts`: after ten failures in a row, which take
    seconds, Pacemaker would not try again for a quarter of an hour, although fencing works again by then.
    """
    options = {"dc-deadtime": "2s", "stonith-max-attempts": "INFINITY", **properties}
    pairs = "".join(
        f"<nvpair id={quoteattr(f'lab-{name}')} name={quoteattr(name)} value={quoteattr(value)}/>"
        for name, value in options.items()
    )
    return (
        '<cib crm_feature_set="3.0.14" validate-with="pacemaker-3.0" epoch="1" num_updates="0" admin_epoch="0"'
        f' remote-tls-port="{TLS_PORT}"><configuration><crm_config>'
        f'<cluster_property_set id="cib-bootstrap-options">{pairs}</cluster_property_set></crm_config>'
        f"<nodes/><resources>{resources}</resources><constraints/></configuration><status/></cib>\n"
    )


def fencing(names: Sequence[str]) -> str:
    """The fencing device, which asks the lab."""
    return (
        '<primitive id="fence-lab" class="stonith" type="fence_lab"><instance_attributes id="fence-lab-attributes">'
        f'<nvpair id="fence-lab-hosts" name="pcmk_host_list" value={quoteattr(" ".join(names))}/>'
        "</instance_attributes></primitive>"
    )


def write_shadow(path: Path, password: str, alone: bool) -> None:
    """This machine's /etc/shadow with a password for USER, or USER alone; readable as that file is."""
    command = ["openssl", "passwd", "-6", "-stdin"]
    hashed = subprocess.run(
        command, input=password, capture_output=True, text=True, check=True
    ).stdout.strip()
    others = [
        line for line in Path("/etc/shadow").read_text().splitlines() if not line.startswith(f"{USER}:")
    ]
    path.touch(0o640)
    path.write_text("\n".join([*others, f"{USER}:{hashed}:20000:0:99999:7:::"]) + "\n")


def pam_service() -> str:
    """The PAM service that checks the password, without a delay after a wrong one.

    `noreap`: otherwise pam_unix turns SIGCHLD off while its helper runs. A CIB daemon whose writer ends meanwhile does
    not hear of that, writes nothing any more, and its node boots with an old CIB (seen on 2.1.5).
    """
    options = "nodelay noreap"
    return f"auth required pam_unix.so {options}\naccount required pam_unix.so {options}\n"
