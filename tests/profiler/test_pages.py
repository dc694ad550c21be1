"""The switch of large pages is turned off inside and set again behind, whatever happens."""

from __future__ import annotations

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
