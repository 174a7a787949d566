import random

from commsched.report import intervals


def test_touching_intervals_are_one():
    assert intervals.union([(5, 7), (1, 3), (3, 4)]) == [(1, 4), (5, 7)]


def test_empty_intervals_are_none():
    assert intervals.union([(3, 3), (5, 4)]) == []


def test_what_is_subtracted_may_cut_one_interval_in_three():
    assert intervals.subtract([(0, 10)], [(1, 2), (4, 6)]) == [
        (0, 1),
        (2, 4),
        (6, 10),
    ]


def test_random_sets_are_as_if_every_instant_were_looked_at():
    generator = random.Random(29)
    for _ in range(300):
        sets = []
        for _ in range(2):
            begins = [generator.randrange(40) for _ in range(6)]
            sets.append([(b, b + generator.randrange(8)) for b in begins])
        instants = [{t for b, e in s for t in range(b, e)} for s in sets]
        a, b = map(intervals.union, sets)
        for found, expected in (
            (a, instants[0]),
            (intervals.subtract(a, b), instants[0] - instants[1]),
            (intervals.intersect(a, b), instants[0] & instants[1]),
            (intervals.clip(a, 10, 20), instants[0] & set(range(10, 20))),
        ):
            assert {t for x, y in found for t in range(x, y)} == expected
            assert intervals.length(found) == len(expected)
