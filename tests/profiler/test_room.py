"""Memory that one column gives and the next takes."""

from __future__ import annotations

import numpy as np

from stallscope.profiler.room import Room

MANY = 1 << 20


def test_a_column_takes_the_smallest_block_that_fits() -> None:
    room = Room()
    large, small = np.zeros(2 * MANY, np.int64), np.zeros(MANY, np.int64)
    room.give(large)
    room.give(small)
    taken = room.empty(MANY, np.int64)
    assert np.shares_memory(taken, small) and taken.dtype == np.int64 and len(taken) == MANY
    assert not np.shares_memory(room.empty(3 * MANY, np.int64), large)


def test_what_is_left_of_a_block_is_taken_too() -> None:
    room = Room()
    block = np.zeros(2 * MANY, np.int64)
    room.give(block)
    first, second = room.empty(MANY + 1, np.int32), room.empty(MANY, np.int64)
    assert np.shares_memory(first, block) and np.shares_memory(second, block)
    assert not np.shares_memory(first, second)


def test_what_cannot_be_written_to_or_is_small_is_left_alone() -> None:
    room = Room()
    room.give(np.broadcast_to(np.int64(1), (MANY,)))
    room.give(np.zeros(10, np.int64))
    fixed = np.zeros(MANY, np.int64)
    fixed.flags.writeable = False
    room.give(fixed)
    block = np.zeros(16 * MANY, np.int64)
    room.give(block)
    assert not np.shares_memory(room.empty(MANY, np.int64), fixed)
    assert not np.shares_memory(room.empty(MANY, np.int64), block)  # a few rows must not hold a large block
    assert len(room.empty(10, np.int8)) == 10
