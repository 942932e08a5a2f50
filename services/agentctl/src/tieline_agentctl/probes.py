"""What operators ask the daemon: does it live, does it take work, and how much is there. No ids, no content.

Read off the instances when somebody asks; nothing is counted meanwhile. Beside the wire of the daemon in the field.
"""

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from tieline_agentctl.instances import Instances
from tieline_agentctl.web import answer, route

PATHS = frozenset({"/livez", "/readyz", "/metrics"})


class Probes(Collector):
    """The routes, and the numbers of all instances together."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def routes(self) -> list[BaseRoute]:
        return [
            route("GET", "/livez", self._livez),
            route("GET", "/readyz", self._readyz),
            route("GET", "/metrics", self._metrics),
        ]

    async def _livez(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        reasons = {"service": "stopping"} if self._instances.closing else {}
        return answer({"ready": not reasons, "reasons": reasons, "notes": {}}, 503 if reasons else 200)

    async def _metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [
            GaugeMetricFamily("tieline_agentctl_instances", "Instances of this daemon"),
            GaugeMetricFamily("tieline_agentctl_agents", "Their agents, by how they are", labels=["state"]),
            GaugeMetricFamily("tieline_agentctl_busy_agents", "Agents that work on a prompt"),
            GaugeMetricFamily(
                "tieline_agentctl_waiting_frames", "Events of agents that no backend has taken"
            ),
            GaugeMetricFamily("tieline_agentctl_readers", "Connections that read a workspace"),
            GaugeMetricFamily("tieline_agentctl_processes", "Processes started for users"),
        ]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        instances = self._instances.all()
        counted, agents, busy, waiting, readers, processes = self.describe()
        counted.add_metric([], len(instances))
        states: dict[str, int] = {}
        for instance in instances:
            state = str(instance.agent.status()["agent_status"])
            states[state] = states.get(state, 0) + 1
        for state, count in states.items():
            agents.add_metric([state], count)
        busy.add_metric([], sum(bool(one.agent.status()["busy"]) for one in instances))
        waiting.add_metric([], sum(one.agent.waiting for one in instances))
        readers.add_metric([], sum(len(one.hub) for one in instances))
        processes.add_metric([], sum(len(one.processes) for one in instances))
        return [counted, agents, busy, waiting, readers, processes]
