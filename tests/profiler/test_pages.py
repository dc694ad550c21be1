"""The switch of large pages is turned off inside and set again behind, whatever happens; freed pages are kept."""

from __future__ import annotations

import functools
import gc
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from stallscope.profiler import pages


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the switch was set to, in order; it stands at True before."""
    told = [True]

    def switch(on: bool) -> bool:
        told.append(on)
        return told[-2]

    monkeypatch.delenv("NUMPY_MADVISE_HUGEPAGE", raising=False)
    monkeypatch.setattr(pages, "_switch", lambda: switch)
    return told


def test_off_inside_and_back_behind(asked: list[bool]) -> None:
    with pages.ordinary_pages():
        assert asked == [True, False]
    assert asked == [True, False, True]


def test_back_behind_an_error(asked: list[bool]) -> None:
    with pytest.raises(ValueError, match="no"), pages.ordinary_pages():
        raise ValueError("no")
    assert asked[-1] is True


def test_what_the_user_set_stays(asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMPY_MADVISE_HUGEPAGE", "1")
    with pages.ordinary_pages():
        pass
    assert asked == [True]


def test_numpy_without_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_switch", lambda: None)
    with pages.ordinary_pages():
        assert len(np.zeros(3)) == 3


def test_numpy_has_the_switch() -> None:
    switch = pages._switch()
    assert switch is not None
    before = switch(False)
    assert switch(before) is False


@pytest.mark.parametrize("was_on", [True, False])
def test_garbage_is_collected_again_behind(was_on: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        with pytest.raises(ValueError, match="no"), pages.computing():
            assert not gc.isenabled()
            raise ValueError("no")
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()


FAULTS = """
import resource, numpy as np
from stallscope.profiler.pages import ordinary_pages
with ordinary_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(8 << 20, np.int8)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are those of glibc")
@pytest.mark.parametrize("told", [True, False])
def test_freed_pages_are_used_again(told: bool) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    # each array has 2048 pages; what the user says of thresholds stands, here: give all back at once
    extra = {} if told else {"MALLOC_MMAP_THRESHOLD_": "131072"}
    out = subprocess.run(
        [sys.executable, "-c", FAULTS], env=clean | extra, capture_output=True, text=True, check=True
    )
    assert (int(out.stdout) < 10_000) == told


@pytest.mark.parametrize(("is_asked", "is_ours"), [(True, True), (True, False), (False, True)])
def test_columns_that_grow_have_a_lower_threshold_meanwhile(
    is_asked: bool, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def mallopt(_: int, size: int) -> int:
        told.append(size)
        return 1

    monkeypatch.setattr(pages, "_keep_pages", functools.cache(lambda: is_ours))
    monkeypatch.setattr(pages, "_mallopt", lambda: mallopt)
    if is_asked:
        pages._keep_pages()

    with pytest.raises(ValueError, match="no"), pages.growing():
        raise ValueError("no")

    assert told == ([16 << 20, 32 << 20] if is_asked and is_ours else [])
