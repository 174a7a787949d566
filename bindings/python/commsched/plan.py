"""Plans: what will be launched in a step, in which order, and what that costs."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _draw
from ._enums import Format, Priority, Schedule, named
from ._handle import Owner
from ._lib import abi
from ._text import text_of
from .errors import FailedPreconditionError, check
from .graph import BufferInfo, Graph

_build = abi.function("commsched_plan_build")
_build_roles = abi.function("commsched_plan_build_roles")
_destroy = abi.function("commsched_plan_destroy")
_get_info = abi.function("commsched_plan_get_info")
_predict = abi.function("commsched_plan_predict")
_explain = abi.function("commsched_plan_explain")
_describe = abi.function("commsched_plan_describe")
_set_links = abi.function("commsched_cost_profile_set_links")


@dataclasses.dataclass
class PlanOptions:
    """commsched_plan_options_t, which says what each means. `coalesce_bytes` of None:
    launches are merged where that is predicted to gain."""

    schedule: Union[Schedule, str] = Schedule.OVERLAP
    deterministic: bool = False
    max_launches_in_flight: int = 0
    num_comm_lanes: int = 0
    max_bytes_in_flight: int = 0
    coalesce_bytes: Optional[int] = None
    arena_bytes: int = 0
    partition_bytes: int = 0
    priority: Union[Priority, str] = Priority.AUTO
    policy: Optional[str] = None
    codec: Optional[str] = None
    backend: Optional[str] = None
    host_of_rank: Optional[Sequence[int]] = None

    def struct(self) -> Any:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["schedule"] = named(Schedule, self.schedule)
        values["priority"] = named(Priority, self.priority)
        for name in ("policy", "codec", "backend"):
            if values[name] is not None:
                values[name] = values[name].encode()
        if self.coalesce_bytes is None:
            del values["coalesce_bytes"]
        if self.host_of_rank is not None:
            hosts = list(self.host_of_rank)
            values["host_of_rank"] = (ctypes.c_int32 * len(hosts))(*hosts)
            values["num_ranks"] = len(hosts)
        return abi.struct("commsched_plan_options_t", **values)


@dataclasses.dataclass
class CostProfile:
    """commsched_cost_profile_t: what things cost. 0 takes the library's default.
    `op_cost_ns`: measured times by op id."""

    link_bytes_per_s: float = 0.0
    link_latency_ns: int = 0
    launch_ns: int = 0
    copy_bytes_per_s: float = 0.0
    flops_per_s: float = 0.0
    memory_bytes_per_s: float = 0.0
    num_ranks_sharing: int = 0
    num_cores: int = 0
    op_cost_ns: Optional[Sequence[int]] = None

    def struct(self) -> Any:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        costs = values.pop("op_cost_ns")
        if costs is not None:
            values["op_cost_ns"] = (ctypes.c_int64 * len(costs))(*costs)
            values["num_ops"] = len(costs)
        return abi.struct("commsched_cost_profile_t", **values)

    def set_links(self, links: Any, num_ranks: int, num_hosts: int) -> None:
        """Takes rates of links from a profile of them (`Context.link_profile`)."""
        made = self.struct()
        check(_set_links(ctypes.byref(links), num_ranks, num_hosts,
                         ctypes.byref(made)))
        self.link_bytes_per_s = made.link_bytes_per_s
        self.link_latency_ns = made.link_latency_ns
        self.launch_ns = made.launch_ns


def _reference(described: Union[PlanOptions, CostProfile, None]) -> Any:
    return None if described is None else ctypes.byref(described.struct())


class Plan(Owner):
    """What `Graph.plan`, `plan_roles` and `Recording.plan` make. It is not changed by
    what happens to the graph afterwards."""

    def __init__(self, graph: Optional[Graph], options: Optional[PlanOptions] = None,
                 profile: Optional[CostProfile] = None, *,
                 handle: Optional[int] = None) -> None:
        if handle is None:
            assert graph is not None
            out = ctypes.c_void_p()
            check(_build(graph.handle, _reference(options), _reference(profile),
                         ctypes.byref(out)))
            handle = out.value
        self._own(handle, _destroy)
        self._made_of = (graph, options, profile)
        self.buffers: Dict[int, BufferInfo] = {} if graph is None else dict(
            graph.buffers)
        self.op_names: Dict[int, str] = {} if graph is None else dict(graph.op_names)

    @property
    def info(self) -> Dict[str, int]:
        """Numbers of launches, waits and bytes: commsched_plan_info_t."""
        return abi.values(self._info())

    @property
    def fingerprint(self) -> str:
        """Equal for equal plans: 32 hexadecimal digits."""
        return bytes(self._info().fingerprint).hex()

    def explain(self, format: Union[Format, str] = Format.TEXT) -> str:
        """Launches with members, waits and why. TEXT, JSON (docs/plan_json.md) or
        DOT."""
        return text_of(_explain, self._handle, named(Format, format))

    def json(self) -> Dict[str, Any]:
        """`explain` in JSON, read."""
        read: Dict[str, Any] = json.loads(self.explain(Format.JSON))
        return read

    def predict(self, profile: Optional[CostProfile] = None) -> Dict[str, int]:
        """A step under `profile`, by default the one that it was planned with, and the
        bound that no plan can be below: commsched_prediction_t."""
        prediction = abi.struct("commsched_prediction_t")
        check(_predict(self._handle, _reference(profile), ctypes.byref(prediction)))
        return abi.values(prediction)

    def verify(self) -> None:
        """Plans the graph once more, which has the verifier prove it again, and
        compares: FailedPreconditionError if that is another plan, as it is if the graph
        has changed. Every plan has been proved once when it was made."""
        graph, options, profile = self._made_of
        if graph is None:
            raise FailedPreconditionError(
                "the plan was not made of one graph: nothing to plan again")
        with Plan(graph, options, profile) as again:
            if again.fingerprint != self.fingerprint:
                raise FailedPreconditionError(
                    f"the graph makes plan {again.fingerprint}, this is "
                    f"{self.fingerprint}: the graph has changed")

    def draw(self, format: str = "text", *, width: int = 78) -> str:
        """The predicted step as a picture: "text", in lines of `width` characters, or
        "svg"."""
        return _draw.draw(self.json(), format, width)

    def describe(self, format: Union[Format, str] = Format.TEXT) -> str:
        """The map of the job: what travels on each axis, and how much is exposed."""
        return describe([self], format)

    def _info(self) -> Any:
        info = abi.struct("commsched_plan_info_t")
        check(_get_info(self._handle, ctypes.byref(info)))
        return info


def describe(plans: Sequence[Plan],
             format: Union[Format, str] = Format.TEXT) -> str:
    """The map of a job with all its roles, in order, or with one."""
    handles = (ctypes.c_void_p * len(plans))(*(plan.handle for plan in plans))
    return text_of(_describe, handles, len(plans), named(Format, format))


def plan_roles(graphs: Sequence[Graph], *, options: Optional[PlanOptions] = None,
               profiles: Optional[Sequence[Optional[CostProfile]]] = None,
               role_of_member: Optional[Sequence[Mapping[int, Sequence[int]]]] = None
               ) -> List[Plan]:
    """Plans ranks with different graphs, as the stages of a pipeline, together: one
    plan per graph. `role_of_member[i]`: by group id of graph i, the index in `graphs`
    of each member; groups that it leaves out have members of role i only."""
    roles, kept = [], []
    for index, graph in enumerate(graphs):
        profile = profiles[index] if profiles is not None else None
        role = abi.struct("commsched_role_desc_t", graph=graph.handle)
        if profile is not None:
            role.profile = ctypes.pointer(profile.struct())
        members = role_of_member[index] if role_of_member is not None else {}
        if members:
            table: Any = (ctypes.POINTER(ctypes.c_uint32) * (max(members) + 1))()
            for group, of in members.items():
                array = (ctypes.c_uint32 * len(of))(*of)
                kept.append(array)
                table[group] = array
            role.role_of_member = table
            role.num_groups = len(table)
        roles.append(role)
    described = (abi.type("commsched_role_desc_t") * max(1, len(roles)))(*roles)
    out = (ctypes.c_void_p * max(1, len(roles)))()
    check(_build_roles(described, len(roles), _reference(options), out))
    return [_of_role(graph, handle) for graph, handle in zip(graphs, out)]


def _of_role(graph: Graph, handle: Optional[int]) -> Plan:
    plan = Plan(None, handle=handle)
    plan.buffers, plan.op_names = dict(graph.buffers), dict(graph.op_names)
    return plan
