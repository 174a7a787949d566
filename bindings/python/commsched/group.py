"""Groups of ranks, and the mesh of named axes that most of them come from."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Mapping, Optional, Sequence, Tuple

from ._handle import Owner
from ._lib import abi
from .errors import check

if TYPE_CHECKING:
    from .context import Context

_create = abi.function("commsched_group_create")
_destroy = abi.function("commsched_group_destroy")
_size = abi.function("commsched_group_size")
_rank = abi.function("commsched_group_rank")
_world_rank = abi.function("commsched_group_world_rank")
_axis = abi.function("commsched_group_axis")
_mesh_create = abi.function("commsched_mesh_create")
_mesh_group = abi.function("commsched_mesh_group")
_mesh_destroy = abi.function("commsched_mesh_destroy")
_Axis = abi.type("commsched_axis_t")


class Group(Owner):
    """Some ranks of a world on an axis. A rank's place among them is its rank in the
    group."""

    def __init__(self, handle: Optional[int]) -> None:
        """For `Context.group` and `Mesh.group`."""
        self._own(handle, _destroy)
        self.size: int = _size(handle)
        self.rank: int = _rank(handle)
        self.axis: str = _axis(handle).decode()
        self.ranks: Tuple[int, ...] = tuple(
            _world_rank(handle, member) for member in range(self.size))

    def __repr__(self) -> str:
        return f"Group({self.axis!r}, {list(self.ranks)})"


def group_of(context: "Context", ranks: Sequence[int], axis: str) -> Group:
    """The group of `ranks`, in that order."""
    out = ctypes.c_void_p()
    check(_create(context.handle, axis.encode(),
                  (ctypes.c_int32 * len(ranks))(*ranks), len(ranks),
                  ctypes.byref(out)), group=axis)
    return Group(out.value)


class Mesh(Owner):
    """The world as a row-major array: the last axis varies fastest."""

    def __init__(self, context: "Context", axes: Mapping[str, int]) -> None:
        described = (_Axis * len(axes))(*(
            _Axis(name.encode(), size) for name, size in axes.items()))
        out = ctypes.c_void_p()
        check(_mesh_create(context.handle, described, len(axes), ctypes.byref(out)))
        self._own(out.value, _mesh_destroy)
        self.axes = dict(axes)

    def group(self, axis: str) -> Group:
        """The ranks that differ from this one along `axis` only."""
        out = ctypes.c_void_p()
        check(_mesh_group(self._handle, axis.encode(), ctypes.byref(out)), group=axis)
        return Group(out.value)
