"""Timelines drawn as text, so that a test can be checked with a finger.

    session = timeline('''
        host     python:step@0..100  op:aten::mm@10..40  rt:cudaLaunchKernel@20..25#1  sync:cudaStreamSynchronize@50..90
        stream7  kernel:gemm@30..80#1  memcpy:Memcpy_DtoH@85..88#2{bytes=4096}
    ''')

A line is a lane and its items; a lane may go on in later lines; lines that begin with `#` are remarks.

lanes    `host`, `host2` ... threads; `stream7` a stream of device 0, `gpu1.stream7` of device 1;
         `label` a lane of labels, `plane3` one of the small tasks of collectives. `rank3.` before any of them puts it on a rank.
items    `prefix:name@start..end`, times in microseconds with decimals; `@start` alone has no length.
names    outside quotes `_` is a space; inside double quotes everything stands for itself.
after    `#12` the correlation id, `^34` the External id, `{key=value;key=value}` arguments: JSON values,
         or plain text. In this order, without spaces between them.
also     `counter:name@5=80` and `point:name@5` (an instant).
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.ids import encode_id
from stallscope.profiler.kinds import Kind
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import (
    ARG_CONST,
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    ARG_STRING,
    StringTable,
    Track,
)

PREFIXES: dict[str, tuple[Kind, str]] = {
    "python": (Kind.PYTHON, "python_function"),
    "op": (Kind.OPERATOR, "cpu_op"),
    "rt": (Kind.RUNTIME, "cuda_runtime"),
    "sync": (Kind.RUNTIME, "cuda_runtime"),
    "queue": (Kind.QUEUE, "dequeue"),
    "kernel": (Kind.KERNEL, "kernel"),
    "coll": (Kind.COLLECTIVE, "kernel"),
    "memcpy": (Kind.MEMCPY, "gpu_memcpy"),
    "memset": (Kind.MEMSET, "gpu_memset"),
    "wait": (Kind.DEVICE_WAIT, "cuda_sync"),
    "mark": (Kind.ANNOTATION, "user_annotation"),
    "gmark": (Kind.DEVICE_ANNOTATION, "gpu_user_annotation"),
    "overhead": (Kind.OVERHEAD, "overhead"),
    "other": (Kind.OTHER, "trace"),
}
"""Item prefix to kind and to the category a Kineto trace would give it."""

_NUMBER = r"-?\d+(?:\.\d+)?"
_ITEM = re.compile(
    rf"(?P<prefix>\w+):(?P<name>\"[^\"]*\"|\S+?)@(?P<start>{_NUMBER})(?:\.\.(?P<end>{_NUMBER})|=(?P<value>{_NUMBER}))?"
    r"(?:#(?P<correlation>\w+))?(?:\^(?P<external>\w+))?(?:\{(?P<args>[^{}]*)\})?(?=\s|$)"
)
_LANE = re.compile(
    r"(?:rank(?P<rank>\d+)\.)?(?:host(?P<thread>\d*)|(?:gpu(?P<device>\d+)\.)?(?:stream(?P<stream>\d+)|plane(?P<plane>\d+))|(?P<label>label\d*))$"
)


def timeline(drawing: str, **facts: Any) -> Session:
    """The session a drawing shows; its times count from 0. Keywords become run facts.

    Raises ValueError, with the text it could not read.
    """
    pen = _Pen()
    for line in drawing.splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            pen.line(text)
    finished = pen.builder.finish(origin_ns=0)
    known: dict[str, Any] = {"source": "drawing", "format": "drawing", "producer": "tests", "devices": {}}
    return Session(finished, known | facts, pen.builder.notes)


class _Pen:
    def __init__(self) -> None:
        self.builder = TimelineBuilder(StringTable())
        self.strings = self.builder.strings

    def line(self, text: str) -> None:
        lane, _, rest = text.partition(" ")
        track = self.builder.add_track(_track(lane))
        rest = rest.strip()
        while rest:
            item = _ITEM.match(rest)
            if item is None:
                raise ValueError(f"cannot read {rest.split()[0]!r} in lane {lane!r} of a drawing")
            self.item(track, item)
            rest = rest[item.end() :].lstrip()

    def item(self, track: int, item: re.Match[str]) -> None:
        name = self.strings.code(_name(item["name"]))
        start = _ns(item["start"])
        if item["prefix"] == "counter":
            self.builder.add_counters(np.array([start]), name, track, np.array([float(item["value"])]))
            return
        if item["prefix"] == "point":
            self.builder.add_marks(np.array([start]), name, track)
            return
        if item["prefix"] not in PREFIXES:
            raise ValueError(
                f"no such item {item['prefix']!r}; there are {', '.join(PREFIXES)}, counter, point"
            )
        kind, category = PREFIXES[item["prefix"]]
        end = _ns(item["end"]) if item["end"] else start
        if end < start:
            raise ValueError(f"{item[0]!r} ends before it starts")
        event = self.builder.add(
            track=track,
            start_ns=np.array([start]),
            dur_ns=np.array([end - start]),
            name=name,
            kind=int(kind),
            category=self.strings.code(category),
            correlation=encode_id(item["correlation"], self.strings),
            external_id=encode_id(item["external"], self.strings),
        )
        self.arguments(self.builder.sources(event), item["args"] or "")

    def arguments(self, source: Any, text: str) -> None:
        for part in filter(None, text.split(";")):
            key, _, value = part.partition("=")
            tag, number = self.value(value.strip())
            self.builder.add_args(source, key.strip(), tag, np.array([number]))

    def value(self, text: str) -> tuple[int, int]:
        """Tag and column value of an argument, as ArgStore keeps them."""
        try:
            decoded = json.loads(text)
        except ValueError:
            return ARG_STRING, self.strings.code(text)
        if decoded is None or isinstance(decoded, bool):
            return ARG_CONST, -1 if decoded is None else int(decoded)
        if isinstance(decoded, int):
            return ARG_INT, decoded
        if isinstance(decoded, float):
            return ARG_FLOAT, int(np.float64(decoded).view(np.int64))
        if isinstance(decoded, str):
            return ARG_STRING, self.strings.code(decoded)
        return ARG_JSON, self.strings.code(text)


def _track(lane: str) -> Track:
    match = _LANE.match(lane)
    if match is None:
        raise ValueError(
            f"no such lane {lane!r}; there are host, host2, stream7, gpu1.stream7, label, rank0.host"
        )
    rank = int(match["rank"]) if match["rank"] else -1
    process = 100 + max(rank, 0)
    if match["stream"]:
        device, stream = int(match["device"] or 0), int(match["stream"])
        return Track(
            f"stream {stream}", "device", rank, device, f"GPU {device}", device=device, stream=stream
        )
    if match["plane"]:
        device = int(match["device"] or 0)
        name = f"Communication: Plane {match['plane']}"
        return Track(name, "label", rank, device, f"GPU {device}", device=device)
    if match["label"]:
        return Track(match["label"], "label", rank, process, "python")
    thread = int(match["thread"] or 1)
    return Track(f"thread {thread}", "host", rank, process, "python", thread)


def _name(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text.replace("_", " ")


def _ns(text: str) -> int:
    whole, _, part = text.partition(".")
    nanoseconds = int(whole.lstrip("-")) * 1000 + int((part + "000")[:3])
    return -nanoseconds if text.startswith("-") else nanoseconds
