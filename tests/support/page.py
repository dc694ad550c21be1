"""Reads a report page back: its elements as a browser would parse them, and its data islands as its script does."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attributes, known = self.scripts[-1]
            self.scripts[-1] = (attributes, known + data)
        elif not self._inside:
            self.text.append(data)


@dataclass
class Slices:
    """The slices of the timeline, shape (n,), decoded; `track` indexes `Page.tracks`, `level` its rows."""

    start: Int64
    drawn: Int64
    dur: Int64
    name: list[str]
    kind: list[str]
    track: Int64
    level: Int64


@dataclass
class Page:
    """A parsed page."""

    source: str
    elements: list[tuple[str, dict[str, str | None]]]
    scripts: list[tuple[dict[str, str | None], str]]
    text: str
    layout: dict[str, Any]
    slices: Slices
    figures: list[dict[str, Any]]
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def tracks(self) -> list[dict[str, Any]]:
        return [t for group in self.layout["groups"] for t in group["tracks"]]

    @property
    def island(self) -> Any:
        return json.loads(island(self.scripts, "report-data"))

    @property
    def code(self) -> list[str]:
        """The text of every script element that a browser would run."""
        return [text for attributes, text in self.scripts if "type" not in attributes]

    def figure(self, id: str) -> dict[str, Any]:
        return next(f for f in self.figures if f["id"] == id)


def island(scripts: list[tuple[dict[str, str | None], str]], id: str) -> str:
    return next(text for attributes, text in scripts if attributes.get("id") == id)


def unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))


def plotly(page: Page) -> bytes:
    return gzip.decompress(base64.b64decode(island(page.scripts, "blob-plotly"), validate=True))


def read_planes(raw: bytes, at: int, n: int, width: int) -> Int64:
    planes = np.frombuffer(raw, np.uint8, n * width, at).reshape(width, n).astype(np.int64)
    return np.asarray(sum(planes[k] << (8 * k) for k in range(width)), np.int64).reshape(n)


def read(source: str) -> Page:
    """Parse a page."""
    parser = _Parser()
    parser.feed(source)
    parser.close()
    layout = json.loads(unpack(island(parser.scripts, "blob-layout")))
    page = Page(
        source=source,
        elements=parser.elements,
        scripts=parser.scripts,
        text=" ".join(" ".join(parser.text).split()),
        layout=layout,
        slices=_slices(layout, unpack(island(parser.scripts, "blob-slices"))),
        figures=json.loads(unpack(island(parser.scripts, "blob-figures"))),
    )
    page.details = _details(unpack(island(parser.scripts, "blob-details")))
    return page


def _slices(layout: dict[str, Any], raw: bytes) -> Slices:
    n, (wg, wd, wn) = layout["slices"], layout["widths"]
    gap = read_planes(raw, 0, n, wg)
    drawn = read_planes(raw, n * wg, n, wd)
    name = read_planes(raw, n * (wg + wd), n, wn)
    assert len(raw) == n * (wg + wd + wn)
    start, track, level = np.zeros(n, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    tracks = [t for group in layout["groups"] for t in group["tracks"]]
    for number, one in enumerate(tracks):
        for depth, (first, many) in enumerate(one["rows"]):
            at = layout["base"]
            for i in range(first, first + many):
                at += int(gap[i])
                start[i] = at
                at += int(drawn[i])
            track[first : first + many], level[first : first + many] = number, depth
    dur = drawn.copy()
    for i, true in layout["clipped"]:
        dur[i] = true
    kinds = [layout["kinds"][layout["nameKinds"][i]] for i in name.tolist()]
    return Slices(start, drawn, dur, [layout["names"][i] for i in name.tolist()], kinds, track, level)


def _details(raw: bytes) -> dict[str, Any]:
    cut = raw.index(0)
    head = json.loads(raw[:cut])
    at = cut + 1
    columns: list[tuple[str, Int64]] = []
    for name, n, width in head["columns"]:
        columns.append((name, read_planes(raw, at, n, width)))
        at += n * width
    assert at == len(raw)
    return {"head": head, "columns": columns, **dict(itertools.islice(columns, 6))}


def unzigzag(v: Int64) -> Int64:
    return (v >> 1) ^ -(v & 1)
