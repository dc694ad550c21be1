"""The raw recording: what a recorded process leaves on disk, readable after any kind of death.

A recording directory holds

    recording.json          written before the target starts: format, version, argv, settings, clock
    end.json                written by the launcher after the target ended: exit status, times (may be missing)
    boot-errors.log         one line per process in which the recorder could not start (may be missing)
    p<PID>-<NS>.jsonl       one per process image: descriptions, one JSON object a line
    p<PID>-<NS>.rec         the same process's fixed records, 32 bytes each
    h<PID>-<NS>.jsonl/.rec  /proc readings about that process, taken by the launcher
    p<PID>-<NS>-w<N>.json   a Kineto window of that process
    p<PID>-<NS>-w<N>/       an NPU window: one *_ascend_pt or *_ascend_ms folder, analysed after the run
    p<PID>-<NS>-u<N>.json   a copy of what the script's own profiler exported
    analysis.json           how the analysis of NPU windows went; analysis.log: what it printed (may be missing)
    busy-<PID>              exists while that process stops or saves a window

Lines of a .jsonl file have a key "ev":

    start    kind (main, child, fork, record), pid, ppid, argv, python, stem, mono_ns
    clock    mono_ns, real_ns, width_ns: one reading of both clocks, real between two monotonic readings
    text     id, text: a text other records refer to
    code     id, name, file, line: text ids of a code object's name and file, its first line
    thread   tid, name
    module   name, version
    framework  facts: what the backend knows at the end (build, device names, threads)
    window-open       n, start_ns, provisional
    window            n, file, start_ns, stop_ns, stopped_ns, saved_ns, why, steps, bytes, events_estimate, provisional,
                      activities, backend; anchors: [[before, after], ...] clock readings round ranges in the window
    window-discarded  n
    user-profiler     n, start_ns, end_ns, file ("" until the script exports its result)
    note     code, severity, text
    error    where, error: a fault of ours, caught
    meter    sampler_cpu_ns, samples, marks, window_ns: our own cost so far
    finish   why, mono_ns
    resumed  mono_ns: an exec failed after "finish"; the process goes on

A fixed record is little-endian `t, dur, a: int64; tid: uint32; flags: uint16; type: uint16`. The type is
written last, so 0 there means "never completed". Times are CLOCK_MONOTONIC nanoseconds.

    type      t              dur                 a                  tid          flags
    MARK      start          length              text id            thread       1 if a forward pass
    ARG       slot of mark   text id of the key  value              -            0 int, 1 float bits, 2 text id
    NODE      parent node    line                code id            node id      -
    SAMPLE    first sample   last less first     node id            thread       samples (saturates)
    GC        start          length              objects collected  thread       generation
    IMPORT    start          length              text id            thread       -
    OVERHEAD  start          length              text id            thread       -
    HOST_CPU  reading        CPU ns so far       run-queue wait ns  thread       -
    HOST_SW   reading        voluntary switches  involuntary        thread       -
    HOST_MEM  reading        resident bytes      -                  process      -

Files grow in steps and are never cut by the process itself: zeros at the end are not records.
"""

from __future__ import annotations

import os
import struct

try:  # the C encoder alone: `import json` would pull in `re`, which the user's script may never need
    from _json import encode_basestring_ascii as _quote
except ImportError:  # other interpreters
    from json.encoder import py_encode_basestring_ascii as _quote

FORMAT = "stallscope.recording"
FORMAT_VERSION = 1

RECORD = struct.Struct("<qqqIHH")
RECORD_BYTES = RECORD.size

MARK, ARG, NODE, SAMPLE, GC, IMPORT, OVERHEAD, HOST_CPU, HOST_SW, HOST_MEM = range(1, 11)
ARG_IS_INT, ARG_IS_FLOAT, ARG_IS_TEXT = range(3)
FORWARD_PASS = 1
"""Flag of a mark that is a forward pass of an outermost module."""

RAW_FOLDER = "raw"
MANIFEST = "recording.json"
END = "end.json"
BOOT_ERRORS = "boot-errors.log"
ANALYSIS, ANALYSIS_LOG = "analysis.json", "analysis.log"

BOOT_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot")
"""Holds the `sitecustomize` that starts the recorder in a child."""

ENV_FOLDER = "STALLSCOPE_RECORDING"
ENV_SETTINGS = "STALLSCOPE_SETTINGS"
ENV_HOME = "STALLSCOPE_HOME"
ENV_LAUNCHER = "STALLSCOPE_LAUNCHER"
ENV_NAMES = (ENV_FOLDER, ENV_SETTINGS, ENV_HOME, ENV_LAUNCHER)


def to_json(value: object) -> str:
    """JSON text of plain values, pure ASCII; what is not plain is written as its `str`.

    >>> to_json({"a": [1, 2.5, None, True], "b": "x\\n"})
    '{"a":[1,2.5,null,true],"b":"x\\\\n"}'
    """
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if value - value == 0 else "null"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(str(k))}:{to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(to_json(v) for v in value) + "]"
    text: str = _quote(str(value))
    return text
