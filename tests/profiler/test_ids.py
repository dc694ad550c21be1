"""Ids come back exactly, whatever their size or type."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stallscope.profiler.ids import NO_ID, decode_id, encode_id
from stallscope.profiler.timeline import StringTable


@given(st.integers(-(2**80), 2**80))
def test_integers_of_any_size(value: int) -> None:
    strings = StringTable()

    assert decode_id(encode_id(value, strings), strings.texts) == value


@given(st.text(min_size=1, max_size=30).filter(lambda t: not t.lstrip("-").isdecimal()))
def test_texts(value: str) -> None:
    strings = StringTable()

    assert decode_id(encode_id(value, strings), strings.texts) == value


def test_none_and_the_largest() -> None:
    strings = StringTable()

    assert encode_id(None, strings) == NO_ID
    assert decode_id(NO_ID, strings.texts) is None
    assert decode_id(encode_id("40004068119343529983", strings), strings.texts) == 40004068119343529983
    assert decode_id(encode_id(2**63 - 1, strings), strings.texts) == 2**63 - 1
