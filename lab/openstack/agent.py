"""Plays an Open vSwitch agent (see forks.py) without Open vSwitch: `be(HOST, [FILE])` is the agent of a host.

It does what Neutron needs to bind ports to the host and make them ACTIVE. It reports its state, receives port changes,
and reports the ports of its host as up. Real agents also pull more data, on more topics. FILE is Neutron's
configuration.
"""

import eventlet

eventlet.monkey_patch()

import sys  # noqa: E402

import oslo_messaging  # noqa: E402
from eventlet import hubs, patcher  # noqa: E402
from neutron import objects  # noqa: E402
from neutron.agent import rpc as agent_rpc  # noqa: E402
from neutron.api.rpc.callbacks import resources  # noqa: E402
from neutron.api.rpc.handlers import resources_rpc  # noqa: E402
from neutron.common import config  # noqa: E402
from neutron.conf.agent import common as agent_config  # noqa: E402
from neutron_lib import constants, context, rpc  # noqa: E402
from neutron_lib.agent import topics  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_log import log  # noqa: E402

NAME = "neutron-ovs"
read = patcher.original("os").read  # the patched one would make a hub, which forks must not share
objects.register_objects()
if hasattr(config, "register_common_config_options"):  # before Wallaby an import registers them
    config.register_common_config_options()
agent_config.register_agent_state_opts_helper(cfg.CONF)
_LOG = log.getLogger(__name__)


def be(host, arguments):
    """Run as the agent of a host, until killed."""
    hubs.use_hub()  # of its own
    (file,) = arguments
    sys.argv = [NAME]
    config.init([f"--config-file={file}", "--log-file="])
    config.setup_logging()
    agent = _Agent(host)
    agent.listen()
    agent.report()
    agent.catch_up()
    while True:
        eventlet.sleep(cfg.CONF.AGENT.report_interval)
        agent.report()


class _Agent:
    target = oslo_messaging.Target(version="1.2", namespace=constants.RPC_NAMESPACE_RESOURCES)

    def __init__(self, host):
        self._host = host
        self._context = context.get_admin_context_without_session()
        self._reports = agent_rpc.PluginReportStateAPI(topics.REPORTS)
        self._plugin = agent_rpc.PluginApi(topics.PLUGIN)
        self._started = False
        self._on_their_way = set()

    def listen(self):
        """Subscribe to all ports of the cloud, as agents do."""
        topic = resources_rpc.resource_type_versioned_topic(resources.PORT)
        self._server = oslo_messaging.get_rpc_server(
            rpc.TRANSPORT,
            oslo_messaging.Target(topic=topic, server=self._host, fanout=True),
            [self],
            executor="eventlet",
            serializer=rpc.RequestContextSerializer(),
        )
        self._server.start()

    def report(self):
        """Report the agent's state and capabilities."""
        state = {
            "binary": "neutron-openvswitch-agent",
            "host": self._host,
            "topic": "N/A",
            "agent_type": constants.AGENT_TYPE_OVS,
            "configurations": {
                "bridge_mappings": {},
                "tunnel_types": ["vxlan"],
                "tunneling_ip": _tunnel_address(self._host),
                "l2_population": False,
                "datapath_type": "system",
                "ovs_capabilities": {"datapath_types": ["system"], "iface_types": []},
            },
            "resource_versions": {},
        }
        if not self._started:
            state["start_flag"] = True
        try:
            self._reports.report_state(self._context, state, use_call=True)
            self._started = True
        except Exception:  # the next report may succeed
            _LOG.exception("the report did not come through")

    def catch_up(self):
        """Bring up the ports that were bound to this host before it subscribed."""
        pull = resources_rpc.ResourcesPullRpcApi()
        for port in pull.bulk_pull(self._context, resources.PORT, filter_kwargs={"status": "DOWN"}):
            self._consider(port.id, port.status, [(b.host, b.vif_type) for b in port.bindings])

    def push(self, context, event_type, resource_list, **_):
        """Handle Neutron's call for changed ports."""
        for resource in resource_list if event_type != "deleted" else []:
            port = resource["versioned_object.data"]
            bindings = [binding["versioned_object.data"] for binding in port.get("bindings") or []]
            self._consider(port["id"], port["status"], [(b["host"], b["vif_type"]) for b in bindings])

    def _consider(self, port, status, bindings):
        if status != "ACTIVE" and (self._host, "ovs") in bindings and port not in self._on_their_way:
            self._on_their_way.add(port)
            eventlet.spawn_n(self._bring_up, port)

    def _bring_up(self, port):
        try:
            self._plugin.update_device_list(self._context, [port], [], f"ovs-agent-{self._host}", self._host)
        except Exception:
            _LOG.exception("port %s did not come up", port)
        finally:
            self._on_their_way.discard(port)


def _tunnel_address(host):
    """Return a loopback address for a host with the name NAME-NUMBER."""
    number = int(host.rpartition("-")[2])
    return f"127.1.{number // 250}.{number % 250 + 1}"
