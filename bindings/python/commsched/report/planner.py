"""Plans a graph by the library, and tells what the plan is predicted to take."""

from __future__ import annotations

import json
from typing import Any, Dict

from commsched.errors import CommschedError
from commsched.graph import Graph
from commsched.plan import CostProfile, PlanOptions


class Unavailable(Exception):
    """The library refuses to plan the graph: says why."""


def plan(
    graph: Dict[str, Any], profile: CostProfile, options: PlanOptions
) -> Dict[str, Any]:
    """Returns the plan of `graph` as docs/plan_json.md describes it."""
    try:
        with Graph(json.dumps(graph)) as made, made.plan(options, profile) as plan:
            return plan.json()
    except CommschedError as error:
        raise Unavailable(f"the step cannot be planned: {error}") from error
