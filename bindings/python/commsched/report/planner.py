"""Plans a graph by the library, and tells what the plan is predicted to take."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Dict


class Unavailable(Exception):
    """The library is not there, or cannot plan the graph: says why."""


def plan(
    graph: Dict[str, Any], profile: Dict[str, Any], options: Dict[str, Any]
) -> Dict[str, Any]:
    """Returns the plan of `graph` as docs/plan_json.md describes it."""
    try:
        from commsched import _lib
    except ImportError as error:
        raise Unavailable(f"there is no library to plan with: {error}") from None
    return _Planner(_lib.abi).plan(graph, profile, options)


class _Planner:
    def __init__(self, abi: Any) -> None:
        self._abi = abi

    def plan(
        self, graph: Dict[str, Any], profile: Dict[str, Any], options: Dict[str, Any]
    ) -> Dict[str, Any]:
        text = json.dumps(graph).encode()
        handle = ctypes.c_void_p()
        self._call("graph_from_json", text, len(text), ctypes.byref(handle))
        try:
            return self._explained(handle, profile, options)
        finally:
            self._abi.function("commsched_graph_destroy")(handle)

    def _explained(
        self, graph: Any, profile: Dict[str, Any], options: Dict[str, Any]
    ) -> Dict[str, Any]:
        priority = options.get("priority", "auto").upper()
        chosen = self._abi.struct(
            "commsched_plan_options_t",
            **{
                **options,
                "priority": self._abi.constant(f"COMMSCHED_PRIORITY_{priority}"),
            },
        )
        costs = self._abi.struct("commsched_cost_profile_t", **profile)
        made = ctypes.c_void_p()
        self._call(
            "plan_build",
            graph,
            ctypes.byref(chosen),
            ctypes.byref(costs),
            ctypes.byref(made),
        )
        try:
            return self._json(made)
        finally:
            self._abi.function("commsched_plan_destroy")(made)

    def _json(self, made: Any) -> Dict[str, Any]:
        out = ctypes.c_char_p()
        as_json = self._abi.constant("COMMSCHED_JSON")
        self._call("plan_explain", made, as_json, ctypes.byref(out))
        try:
            explained: Dict[str, Any] = json.loads(out.value or b"{}")
        finally:
            self._abi.function("commsched_string_free")(out)
        return explained

    def _call(self, name: str, *args: Any) -> None:
        status = self._abi.function(f"commsched_{name}")(*args)
        if status != 0:
            message = self._abi.function("commsched_last_error")()
            raise Unavailable(f"the step cannot be planned: {message.decode()}")
