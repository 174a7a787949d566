#!/usr/bin/env python3
"""Calls the library as a program without headers does.

    binding_test.py LIBCOMMSCHED LIBCOMMSCHED_ENGINE
"""

import ctypes
import sys
import unittest
from ctypes import byref

import binding

LIBRARIES = {}


class BindingTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.lib = binding.Binding(LIBRARIES)

    def ok(self, status):
        self.assertEqual(self.lib.commsched_last_error() if status else b"", b"")

    def test_structs_are_laid_out_as_told(self):
        for struct in self.lib.abi["structs"]:
            made = self.lib.struct(struct["name"])
            self.assertEqual(ctypes.sizeof(made), struct["size"], struct["name"])
            self.assertEqual(ctypes.alignment(made), struct["alignment"],
                             struct["name"])
            for field in struct["fields"]:
                at = getattr(type(made), field["name"])
                self.assertEqual((at.offset, at.size),
                                 (field["offset"], field["size"]),
                                 f"{struct['name']}.{field['name']}")

    def test_each_function_is_in_the_library_that_is_told(self):
        loaded = {n: ctypes.CDLL(path) for n, path in LIBRARIES.items()}
        self.assertEqual({f["library"] for f in self.lib.abi["functions"]},
                         set(loaded))
        for function in self.lib.abi["functions"]:
            self.assertTrue(hasattr(loaded[function["library"]], function["name"]))
            # The engine's, which is loaded with the core that it needs, finds all.
            self.assertEqual(hasattr(loaded["commsched"], function["name"]),
                             function["library"] == "commsched", function["name"])

    def test_a_version_is_told(self):
        self.assertEqual(self.lib.abi["version"], 1)
        self.assertEqual(self.lib.abi["library_version"].encode(),
                         self.lib.commsched_version())
        self.assertEqual(self.lib.abi["abi_version"],
                         self.lib.commsched_abi_version())

    def test_defaults_are_those_of_init(self):
        options = self.lib.struct("commsched_plan_options_t")
        self.assertEqual(options.coalesce_bytes, 2**64 - 1)
        self.assertEqual(self.lib.struct("commsched_join_desc_t").rank, -1)
        links = self.lib.struct("commsched_link_profile_t")
        self.assertEqual(links.network.bytes_per_s, 1.25e9)

    def test_the_library_fills_a_struct(self):
        links = self.lib.struct("commsched_link_profile_t")
        links.network.bytes_per_s = 2e9
        links.network.latency_ns = 7000
        costs = self.lib.struct("commsched_cost_profile_t", flops_per_s=3.0)
        self.ok(self.lib.commsched_cost_profile_set_links(
            byref(links), 2, 2, byref(costs)))
        self.assertEqual(costs.link_bytes_per_s, 2e9)
        self.assertEqual(costs.link_latency_ns, 2 * 7000)
        self.assertEqual(costs.flops_per_s, 3.0)

    def test_a_step_is_planned(self):
        lib = self.lib
        graph = lib.handle("commsched_graph_t")
        plan = lib.handle("commsched_plan_t")
        self.ok(lib.commsched_graph_create(byref(graph)))
        self.addCleanup(lib.commsched_graph_destroy, graph)
        group, buffer = ctypes.c_uint32(), ctypes.c_uint32()
        backward, reduce = ctypes.c_uint32(), ctypes.c_uint32()
        self.ok(lib.commsched_graph_add_group(graph, b"dp", 2, byref(group)))
        self.ok(lib.commsched_graph_add_buffer(
            graph, byref(lib.struct("commsched_buffer_desc_t", name=b"grad",
                                    ownership=lib.COMMSCHED_BOUND, count=1024)),
            byref(buffer)))
        write = lib.struct("commsched_access_t", buffer=buffer.value,
                           mode=lib.COMMSCHED_WRITE)
        self.ok(lib.commsched_graph_add_compute(
            graph, byref(lib.struct("commsched_compute_desc_t", name=b"backward",
                                    accesses=ctypes.pointer(write),
                                    num_accesses=1)),
            byref(backward)))
        self.ok(lib.commsched_graph_add_collective(
            graph, byref(lib.struct("commsched_collective_desc_t", name=b"reduce",
                                    kind=lib.COMMSCHED_ALL_REDUCE,
                                    group=group.value, input=write, output=write)),
            byref(reduce)))
        self.ok(lib.commsched_plan_build(
            graph, byref(lib.struct("commsched_plan_options_t")), None, byref(plan)))
        self.addCleanup(lib.commsched_plan_destroy, plan)
        info = lib.struct("commsched_plan_info_t")
        self.ok(lib.commsched_plan_get_info(plan, byref(info)))
        self.assertEqual((info.num_ops, info.num_launches, info.max_launch_bytes),
                         (2, 1, 4096))
        self.assertEqual(len(info.fingerprint), 16)
        self.assertTrue(any(info.fingerprint))

    def test_the_library_calls_back(self):
        lib = self.lib
        world = lib.handle("commsched_world_t")
        context = lib.handle("commsched_context_t")
        self.ok(lib.commsched_world_create_inproc(
            byref(lib.struct("commsched_world_desc_t", size=1)), byref(world)))
        self.addCleanup(lib.commsched_world_destroy, world)
        self.ok(lib.commsched_context_create(world, 0, byref(context)))
        self.addCleanup(lib.commsched_context_destroy, context)
        shown = {}

        def take(_, rank, data, num_bytes):
            shown[rank] = ctypes.string_at(data, num_bytes)

        desc = lib.struct("commsched_gather_desc_t", name=b"words", bytes=5)
        text = ctypes.create_string_buffer(b"hello")
        desc.data = ctypes.addressof(text)
        desc.take = type(desc.take)(take)
        self.ok(lib.commsched_context_gather(context, byref(desc)))
        self.assertEqual(shown, {0: b"hello"})

    def test_the_library_refuses_and_says_why(self):
        world = self.lib.handle("commsched_world_t")
        status = self.lib.commsched_world_create_inproc(
            byref(self.lib.struct("commsched_world_desc_t", size=0)), byref(world))
        self.assertEqual(status, self.lib.COMMSCHED_INVALID_ARGUMENT)
        self.assertIn(b"4096 ranks, not 0", self.lib.commsched_last_error())
        self.assertFalse(world)


if __name__ == "__main__":
    LIBRARIES = dict(zip(("commsched", "commsched_engine"), sys.argv[1:]))
    unittest.main(argv=sys.argv[:1])
