"""Columns on their way into a page come back as they were, however they are packed."""

from __future__ import annotations

import base64
import sys
import zlib

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
