#!/usr/bin/env python3
"""scripts/host_limit.py, with cases that are computed by hand."""

import sys
import unittest

import machine

sys.path.insert(0, str(machine.SCRIPTS))

# pylint: disable=wrong-import-position
import host_limit
from hosts import Layout

PAYLOAD = 0.957e9  # Bits per second that TCP has of 1 Gbit/s.


def in_arrays(collective, layout, widening=1):
    return host_limit.least_bytes(collective, Layout(layout).host_of, 1,
                                  widening)


def milliseconds(collective, layout):
    num_bytes = host_limit.least_bytes(collective, Layout(layout).host_of,
                                       16 << 20)
    return round(num_bytes * 8 / PAYLOAD * 1e3)


def pieces(layout, widening=1):
    layout = Layout(layout)
    return [host_limit.pieces(layout.host_of, host, widening)
            for host in range(layout.num_hosts)]


class PiecesTest(unittest.TestCase):

    def test_an_aligned_host_of_a_power_of_two_sends_one(self):
        self.assertEqual(pieces("2x4"), [1, 1])
        self.assertEqual(pieces("4+2+2"), [1, 1, 1])

    def test_a_host_of_three_sends_two(self):
        # 01 2 | 3 45.
        self.assertEqual(pieces("2x3"), [2, 2])
        # 01 2 | 3; 0 | 1 23.
        self.assertEqual(pieces("3+1"), [2, 1])
        self.assertEqual(pieces("1+3"), [1, 2])

    def test_a_node_at_the_end_may_have_any_number_of_ranks(self):
        # Of seven ranks 4, 5 and 6 are T(4, 7).
        self.assertEqual(pieces("4+3"), [1, 1])

    def test_in_turns_each_rank_is_one(self):
        self.assertEqual(pieces("2x4:round-robin"), [4, 4])
        # Hosts 0 1 2 0 1 2 0 0: the last two are a node.
        self.assertEqual(pieces("4+2+2:round-robin"), [3, 2, 2])

    def test_a_wide_partial_sum_counts_twice_and_a_rank_once(self):
        self.assertEqual(pieces("4x1", widening=2), [1, 1, 1, 1])
        self.assertEqual(pieces("2x4", widening=2), [2, 2])
        self.assertEqual(pieces("2x3", widening=2), [3, 3])


class LeastTest(unittest.TestCase):

    def check(self, collective, arrays, widening=1):
        for layout, expected in arrays.items():
            self.assertAlmostEqual(
                in_arrays(collective, layout, widening), expected, 9,
                f"{collective} {layout}")

    def test_at_1_gbit_s_16_mib_take_so_many_milliseconds(self):
        expected = {
            "all_reduce": {"4x1": 210, "2x2": 140, "2x4": 140},
            "all_gather": {"4x1": 105, "2x2": 70, "2x4": 70},
            "reduce_scatter": {"4x1": 105, "2x2": 70, "2x4": 70},
            "all_to_all": {"4x1": 105, "2x4": 280},
            "broadcast": {"4x1": 140, "2x2": 140, "2x4": 140},
            "reduce": {"4x1": 140, "2x2": 140, "2x4": 140}}
        for collective, layouts in expected.items():
            for layout, time_ms in layouts.items():
                self.assertEqual(milliseconds(collective, layout), time_ms,
                                 f"{collective} {layout}")

    def test_all_reduce_of_equal_hosts_with_one_piece_is_2_h_1_over_h(self):
        self.check("all_reduce", {"2x1": 1, "3x4": 4 / 3, "4x2": 3 / 2,
                                  "8x1": 7 / 4})

    def test_all_reduce_sums_where_most_pieces_are(self):
        # The host of three adds up all of it: 1 in, 1 out. Half of it each
        # would be 1.5 out.
        self.check("all_reduce", {"3+1": 1, "1+3": 1})
        # Two pieces of the half that the other adds up, one half of results.
        self.check("all_reduce", {"2x3": 1.5})
        self.check("all_reduce", {"2x4:round-robin": 2.5})

    def test_all_reduce_of_uneven_hosts_with_one_piece_is_that_of_equal(self):
        self.check("all_reduce", {"4+2+2": 4 / 3})

    def test_wide_partial_sums_cost_more_than_equal_ones(self):
        self.check("all_reduce", {"2x1": 1, "2x4": 1.5}, widening=2)

    def test_reduce_is_one_array_where_each_host_has_one_piece(self):
        self.check("reduce", {"2x1": 1, "8x1": 1, "4+2+2": 1, "3+1": 1})
        # Host 1 adds up a share s: 2 (1 - s) + s out, 2 s in.
        self.check("reduce", {"2x3": 4 / 3})

    def test_reduce_scatter_adds_up_the_ranks_own_parts(self):
        # Three quarters to the host of three; two pieces of a quarter back.
        self.check("reduce_scatter", {"3+1": 0.75})
        self.check("reduce_scatter", {"2x3": 1, "4+2+2": 1})

    def test_all_gather_gets_the_parts_of_all_other_hosts(self):
        self.check("all_gather", {"3+1": 0.75, "2x3": 0.5, "4x1": 0.75})
        # Six of eight parts, while four of them, straight to two hosts, would
        # be eight.
        self.check("all_gather", {"4+2+2": 0.75, "6+1+1": 0.875})

    def test_all_gather_sends_each_part_once_at_least(self):
        self.check("all_gather", {"7+1": 0.875})

    def test_all_to_all_sends_from_each_rank_to_each_rank_elsewhere(self):
        self.check("all_to_all", {"3+1": 0.75, "2x3": 1.5, "4+2+2": 2})

    def test_only_sums_depend_on_the_order_of_ranks(self):
        for collective in ("all_gather", "all_to_all", "broadcast"):
            self.assertEqual(in_arrays(collective, "2x4"),
                             in_arrays(collective, "2x4:round-robin"))

    def test_one_host_has_no_link(self):
        for collective in host_limit.LIMITS:
            self.assertEqual(
                host_limit.least_bytes(collective, [0, 0, 0], 1 << 20), 0)


if __name__ == "__main__":
    unittest.main()
