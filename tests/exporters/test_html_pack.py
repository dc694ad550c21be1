"""Columns on their way into a page come back as they were, however they are packed."""

from __future__ import annotations

import base64
import itertools
import sys
import zlib

import numpy as np
import pytest

from stallscope.exporters import html_pack


@pytest.mark.parametrize("with_isal", [True, False])
@pytest.mark.parametrize("large", [True, False])
def test_every_way_of_packing_is_zlib(large: bool, with_isal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = bytes(range(256)) * 300
    if not with_isal:
        monkeypatch.setitem(sys.modules, "isal", None)
    if large:
        monkeypatch.setattr(html_pack, "LARGE", len(raw))

    packed = base64.b64decode(html_pack.deflated(raw))

    assert zlib.decompress(packed) == raw
    assert len(packed) < len(raw) / 20


@pytest.mark.parametrize("most", [1, 2, 3, 10, 101])
def test_buckets_keep_their_first_lowest_and_highest_value(most: int) -> None:
    values = np.random.default_rng(most).integers(0, 5, 300).astype(float)  # many are equal
    edges = np.linspace(0, len(values), most // 2 + 1).astype(int).tolist()

    kept = html_pack.extremes(values, most).tolist()

    wanted = set()
    for lo, hi in itertools.pairwise(edges):
        wanted |= {lo + int(values[lo:hi].argmin()), lo + int(values[lo:hi].argmax())}
    assert kept == sorted(wanted)
