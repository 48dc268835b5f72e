"""Memory of copies comes back when the last copy of its block has gone, and not before."""

import threading

import numpy as np

from msprobe.core import recycling
from msprobe.core.recycling import BLOCK_BYTES, Recycler


def address(array):
    return array.__array_interface__["data"][0]


def test_arrays_lie_apart_and_aligned():
    recycler = Recycler()
    arrays = [recycler.take(n) for n in (1, 100, 0, 64, 3)]
    for i, array in enumerate(arrays):
        array[:] = i
    assert [array.tolist() for array in arrays] == [[0], [1] * 100, [], [3] * 64, [4] * 3]
    assert {address(array) % 64 for array in arrays} == {address(arrays[0]) % 64}


def test_memory_is_used_again_when_its_last_array_has_gone():
    recycler = Recycler()
    first, second = recycler.take(BLOCK_BYTES // 2), recycler.take(BLOCK_BYTES // 2)
    where, view = address(first), second.view(np.float32)[1:]
    recycler.take(BLOCK_BYTES)
    del first, second
    view[:] = 7
    other = recycler.take(BLOCK_BYTES)
    other[:] = 0
    assert address(other) != where
    assert (view == 7).all()
    del view
    again = [recycler.take(BLOCK_BYTES) for _ in range(2)]
    assert where in [address(array) for array in again]


def test_a_large_array_has_memory_of_its_own():
    recycler = Recycler()
    assert recycler.take(BLOCK_BYTES + 1).nbytes == BLOCK_BYTES + 1


def test_no_more_than_a_bound_is_kept_unused(monkeypatch):
    monkeypatch.setattr(recycling, "MOST_UNUSED", 2 * BLOCK_BYTES)
    recycler = Recycler()
    arrays = [recycler.take(BLOCK_BYTES) for _ in range(5)]
    del arrays
    recycler.take(1)
    assert sum(block.nbytes for block in recycler._unused) <= 2 * BLOCK_BYTES
    recycler.clear()
    assert not recycler._unused


def test_another_thread_may_let_go():
    recycler, handed = Recycler(), []
    for _ in range(50):
        handed.append(recycler.take(BLOCK_BYTES // 3))
        thread = threading.Thread(target=handed.clear)
        thread.start()
        thread.join()
    assert len(recycler._unused) <= 2
