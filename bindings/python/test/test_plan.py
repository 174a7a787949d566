"""Graphs and plans: what is planned, proved, predicted and drawn."""

import dataclasses
import json
import xml.etree.ElementTree as xml

import pytest

import commsched as cs
from commsched._lib import abi

LINK = cs.CostProfile(link_bytes_per_s=1e7)


def make(grads=1000):
    graph = cs.Graph()
    graph.group("dp", 2)
    weights = graph.buffer("weights", "f32", grads, "bound")
    buffer = graph.buffer("grads", cs.DType.F32, grads)
    graph.compute("backward", reads=[weights], writes=[buffer], cost_ns=1_000_000)
    graph.collective("reduce", "all_reduce", input=buffer, op="avg")
    graph.compute("update", reads=[buffer], updates=[weights], cost_ns=200_000)
    return graph


def test_a_graph_survives_json():
    graph = make()
    again = cs.Graph(graph.to_json())
    assert again.to_json() == graph.to_json()
    assert (again.buffers, again.op_names) == (graph.buffers, graph.op_names)
    assert again.find("update") == graph.find("update") == 2
    assert len(again) == 3


def test_what_is_not_there_is_named():
    graph = make()
    with pytest.raises(cs.NotFoundError) as caught:
        graph.find("forward")
    assert caught.value.op == "forward"
    with pytest.raises(cs.AlreadyExistsError, match="update"):
        graph.compute("update")
    with pytest.raises(ValueError, match="DType is 'f31'; it is one of f32"):
        graph.buffer("other", "f31", 1)
    with pytest.raises(ValueError, match="'nothing' has neither input nor output"):
        graph.collective("nothing", "all_gather")


def test_parts_of_buffers():
    graph = cs.Graph()
    group = graph.group("dp", 2)
    whole = graph.buffer("whole", "f32", 8, "bound")
    graph.compute("half", writes=[cs.region(whole, 0, 4)])
    graph.compute("own", updates=[cs.shard(whole, group)])
    graph.compute("columns", reads=[cs.tile(whole, 0, 2, 2, 4)])
    graph.collective("gather", "all_gather", group=group, output=whole)
    graph.collective("scatter", "reduce_scatter", group=group, input=whole)
    accesses = [op["accesses"] for op in json.loads(graph.to_json())["ops"][:3]]
    assert [a[0].get("region", "whole") for a in accesses] == [
        "range", "shard", "tile"]
    assert graph.plan().info["num_collectives"] == 2


def test_buffers_of_a_place_group_take_turns():
    graph = cs.Graph()
    for name in ("one", "two"):
        graph.compute(name, writes=[graph.buffer(name, "f32", 64, place_group=3)])
    assert cs.Graph(graph.to_json()).buffers == graph.buffers
    assert {place["offset"] for place in graph.plan().json()["arena"]} == {0}
    graph.compute("again", reads=[0])
    with pytest.raises(cs.InvalidArgumentError, match="'one' and 'two' of place group"):
        graph.plan()


def test_edges_order_ops():
    graph = cs.Graph()
    first, second = graph.compute("first"), graph.compute("second")
    graph.compute("third", after=[first, second])
    with pytest.raises(cs.InvalidArgumentError, match="cycle|distance"):
        graph.edge(second, first)
        graph.edge(first, second)
        graph.edge(first, first, 2)


def test_a_plan_predicts_and_bounds_a_step():
    prediction = make().plan(profile=LINK).predict()
    assert prediction["compute_ns"] == 1_200_000
    assert prediction["lower_bound_ns"] <= prediction["step_ns"]
    assert prediction["exposed_ns"] > 0
    faster = make().plan(profile=LINK).predict(cs.CostProfile(link_bytes_per_s=1e9))
    assert faster["step_ns"] < prediction["step_ns"]


def test_measured_costs_replace_estimates():
    costs = cs.CostProfile(op_cost_ns=[3_000_000, 0, 1_000_000])
    assert make().plan(profile=costs).predict()["compute_ns"] == 4_000_000
    with pytest.raises(cs.InvalidArgumentError):
        make().plan(profile=cs.CostProfile(op_cost_ns=[1]))


def test_a_plan_is_proved_again_unless_its_graph_has_changed():
    graph = make()
    plan = graph.plan(profile=LINK)
    plan.verify()
    graph.compute("more")
    with pytest.raises(cs.FailedPreconditionError, match="the graph has changed"):
        plan.verify()


def test_a_plan_explains_itself():
    plan = make().plan(profile=LINK)
    assert plan.explain().startswith(f"plan {plan.fingerprint}:")
    assert plan.json()["launches"][0]["members"] == ["reduce"]
    assert plan.explain("dot").startswith("digraph")
    assert "axis 'dp', 2 ranks" in plan.describe()


def test_options_reach_the_planner():
    serial = make().plan(cs.PlanOptions(schedule="serial", coalesce_bytes=0,
                                        deterministic=True, host_of_rank=[0, 1]))
    options = serial.json()["options"]
    assert (options["schedule"], options["deterministic"]) == ("serial", True)
    assert options["coalesce_auto"] is False
    assert make().plan().json()["options"]["coalesce_auto"] is True
    with pytest.raises(cs.NotFoundError, match="nobody"):
        make().plan(cs.PlanOptions(policy="nobody"))


@pytest.mark.parametrize("kind, name, without", [
    (cs.PlanOptions, "commsched_plan_options_t", {"struct_size", "num_ranks"}),
    (cs.CostProfile, "commsched_cost_profile_t", {"struct_size", "num_ops"})])
def test_options_have_all_fields_of_the_library(kind, name, without):
    described = next(s for s in abi.described["structs"] if s["name"] == name)
    assert {f.name for f in dataclasses.fields(kind)} == {
        f["name"] for f in described["fields"]} - without


def test_a_plan_is_drawn_as_text():
    drawn = make().plan(profile=LINK).draw(width=60).splitlines()
    assert drawn[0].startswith("step 1.6")
    compute, comm = drawn[1:]
    assert compute.startswith("compute 0 [--") and "backward" in compute
    # The reduction begins where the backward pass ends, and the update comes after.
    assert compute.index("]") < comm.index("[") < compute.rindex("[")
    assert max(map(len, drawn[1:])) <= 60


def test_a_plan_is_drawn_as_svg():
    drawn = xml.fromstring(make().plan(profile=LINK).draw("svg"))
    titles = [t.text for t in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert [t.split(":")[0] for t in titles] == ["backward", "update", "reduce"]
    with pytest.raises(ValueError, match="'png'; there are text and svg"):
        make().plan().draw("png")


def test_stages_of_a_pipeline_are_planned_together():
    def stage(kind):
        graph = cs.Graph()
        pp = graph.group("pp", 2)
        acts = graph.buffer("acts", "f32", 16)
        if kind == "send":
            graph.compute("forward", writes=[acts])
            graph.collective("out", "send", group=pp, input=acts, peer_offset=1)
        else:
            graph.collective("in", "recv", group=pp, output=acts, peer_offset=1)
            graph.compute("forward", reads=[acts])
        return graph

    members = [{0: [0, 1]}, {0: [0, 1]}]
    plans = cs.plan_roles([stage("send"), stage("recv")], role_of_member=members)
    assert "role 1 of 2" in cs.describe(plans)
    with pytest.raises(cs.InvalidArgumentError):
        cs.plan_roles([stage("send"), stage("send")], role_of_member=members)
