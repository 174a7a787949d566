"""Graphs: what must happen in a step, for a plan to be made of."""

from __future__ import annotations

import ctypes
import dataclasses
import json as json_text
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Union

from . import _describe
from ._enums import Collective, DType, Ownership, named
from ._handle import Owner
from ._lib import abi
from ._text import text_of
from .errors import check

if TYPE_CHECKING:
    from .plan import CostProfile, Plan, PlanOptions

_create = abi.function("commsched_graph_create")
_destroy = abi.function("commsched_graph_destroy")
_add_group = abi.function("commsched_graph_add_group")
_add_buffer = abi.function("commsched_graph_add_buffer")
_add_compute = abi.function("commsched_graph_add_compute")
_add_collective = abi.function("commsched_graph_add_collective")
_add_edge = abi.function("commsched_graph_add_edge")
_num_ops = abi.function("commsched_graph_num_ops")
_find_op = abi.function("commsched_graph_find_op")
_to_json = abi.function("commsched_graph_to_json")
_from_json = abi.function("commsched_graph_from_json")


@dataclasses.dataclass(frozen=True)
class BufferInfo:
    """What a buffer was declared as."""

    name: str
    dtype: DType
    count: int
    ownership: Ownership
    place_group: int = 0


class Graph(Owner):
    """Groups, buffers and ops of a step. What adds returns an id, which counts from 0.

    `json`: what `to_json` wrote, to begin with.
    """

    def __init__(self, json: Optional[str] = None) -> None:
        out = ctypes.c_void_p()
        if json is None:
            check(_create(ctypes.byref(out)))
        else:
            text = json.encode()
            check(_from_json(text, len(text), ctypes.byref(out)))
        self._own(out.value, _destroy)
        self.buffers: Dict[int, BufferInfo] = {}
        self.op_names: Dict[int, str] = {}
        if json is not None:
            self._read_names(json)

    def group(self, name: str, size: int) -> int:
        """`size` ranks on the axis `name`; a session says which."""
        out = ctypes.c_uint32()
        check(_add_group(self._handle, name.encode(), size, ctypes.byref(out)),
              group=name)
        return out.value

    def buffer(self, name: str, dtype: Union[DType, str], count: int,
               ownership: Union[Ownership, str] = Ownership.OWNED,
               place_group: int = 0) -> int:
        """`count` packed elements. OWNED: the plan's own memory; BOUND: the caller's,
        given to the session; LATE_BOUND: the caller's, given in every step.

        `place_group`: OWNED buffers of one number other than 0 lie at one address and
        take turns there, as commsched_buffer_desc_t has it."""
        dtype, ownership = named(DType, dtype), named(Ownership, ownership)
        desc = abi.struct("commsched_buffer_desc_t", name=name.encode(), dtype=dtype,
                          ownership=ownership, count=count, place_group=place_group)
        out = ctypes.c_uint32()
        check(_add_buffer(self._handle, ctypes.byref(desc), ctypes.byref(out)))
        self.buffers[out.value] = BufferInfo(name, dtype, count, ownership, place_group)
        return out.value

    def compute(self, name: str, **options: Any) -> int:
        """An op that the caller runs. `reads`, `writes`, `updates`: buffers or parts of
        them; `after`: ops; `lane`, `priority`, `cost_ns`, `flops`, `bytes`: as
        commsched_compute_desc_t has them."""
        desc = _describe.compute_desc(name, **options)
        return self._added(name, _add_compute, ctypes.byref(desc))

    def collective(self, name: str, kind: Union[Collective, str],
                   **options: Any) -> int:
        """An op that the session launches on `group`. `input` and `output`: buffers or
        parts; one of them alone means in place. `op`, `root`, `counts`, `after`,
        `priority`, `peer_offset`, `lossy`: as commsched_collective_desc_t has them."""
        desc = _describe.collective_desc(name, kind, **options)
        return self._added(name, _add_collective, ctypes.byref(desc))

    def edge(self, before: int, after: int, distance: int = 0) -> None:
        """`after`, `distance` steps later, starts when `before` is complete."""
        check(_add_edge(self._handle, before, after, distance),
              op=self.op_names.get(after))

    def __len__(self) -> int:
        return int(_num_ops(self._handle))

    def find(self, name: str) -> int:
        """The id of the op `name`."""
        out = ctypes.c_uint32()
        check(_find_op(self._handle, name.encode(), ctypes.byref(out)), op=name)
        return out.value

    def to_json(self) -> str:
        """The graph in the format of docs/graph_json.md."""
        return text_of(_to_json, self._handle)

    def plan(self, options: "Optional[PlanOptions]" = None,
             profile: "Optional[CostProfile]" = None) -> "Plan":
        """Plans it, and proves that the plan has no races and no deadlocks."""
        from .plan import Plan
        return Plan(self, options, profile)

    def _added(self, name: str, function: Any, *arguments: Any) -> int:
        out = ctypes.c_uint32()
        check(function(self._handle, *arguments, ctypes.byref(out)), op=name)
        self.op_names[out.value] = name
        return out.value

    def _read_names(self, text: str) -> None:
        described = json_text.loads(text)
        for number, op in enumerate(described["ops"]):
            self.op_names[number] = op["name"]
        for number, each in enumerate(described["buffers"]):
            self.buffers[number] = BufferInfo(
                each["name"], named(DType, each["dtype"]), each["count"],
                named(Ownership, each.get("ownership", "owned")),
                each.get("place_group", 0))
