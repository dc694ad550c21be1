"""What several exporters need: plain JSON values, safe text, names of tracks, files that are written once."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from stallscope.profiler.errors import InputError
from stallscope.profiler.timeline import Track

MAX_SAFE_INTEGER = (1 << 53) - 1
"""The largest integer a JavaScript number holds exactly; larger ones are written as decimal text."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 and C1 controls (a terminal obeys them), and the marks that reorder text
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Text that can be written as UTF-8: lone surrogates become the replacement character."""
    return _SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Text for one line of a terminal or a slice: nothing in it steers a terminal or a viewer.

    >>> one_line("a\\x1b[31m\\nb")
    'a [31m b'
    """
    return _UNSEEN.sub(" ", clean(text))


def plain(value: Any) -> Any:
    """A value as JSON holds it everywhere: no NaN, no lone surrogates, no integer JavaScript would round.

    Integers beyond `MAX_SAFE_INTEGER` become decimal text, non-finite numbers null, keys text, tuples and
    sets lists, anything unknown its `str`.
    """
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int | np.integer):
        number = int(value)
        return number if abs(number) <= MAX_SAFE_INTEGER else str(number)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()]
    if isinstance(value, set | frozenset):
        return sorted((plain(v) for v in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return clean(str(value))


def process_label(track: Track) -> str:
    """The process of a track, or its device, as a person calls it.

    >>> process_label(Track("stream 7", "device", rank=2, device=0, stream=7))
    'rank 2 device 0'
    """
    parts = [f"rank {track.rank}"] if track.rank >= 0 else []
    if track.device >= 0:
        return " ".join([*parts, f"device {track.device}"])
    number = "" if track.process in (-1, "") else str(track.process)
    name = track.process_name or "process"
    parts.append(name if not number or number in name else f"{name} {number}")
    return one_line(" / ".join(parts))


def track_label(track: Track) -> str:
    """A track as a person calls it, unique among the tracks of most recordings.

    >>> track_label(Track("thread 1", "host", process=100, process_name="python", thread=1))
    'python 100 / thread 1'
    """
    return f"{process_label(track)} / {one_line(track.name)}"


def gzip_writer(file: IO[bytes]) -> IO[bytes]:
    """A gzip stream at the fastest level, without a time or a name in it: equal input gives equal bytes."""
    packed: Any
    try:
        from isal import igzip
    except ImportError:
        import gzip

        packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=1, mtime=0)
    else:
        packed = igzip.IGzipFile(filename="", mode="wb", fileobj=file, compresslevel=1, mtime=0)
    return cast("IO[bytes]", packed)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file to write to, compressed where its name ends in `.gz`. Raises InputError.

    The file takes the place of an older one when it is whole: on a full disk, or interrupted, the older one stays.
    """
    target = Path(path)
    try:
        with _placed(target) as file:
            if target.suffix != ".gz":
                yield file
                return
            with gzip_writer(file) as packed:
                yield packed
    except OSError as error:
        raise InputError(target, f"cannot be written ({error.strerror or error})") from error


@contextmanager
def _placed(target: Path) -> Iterator[IO[bytes]]:
    if (
        target.exists() and not target.is_file()
    ):  # a pipe, /dev/stdout; of a folder open() says that it is one
        with target.open("wb") as file:
            yield file
        return
    whole = Path(os.path.realpath(target))
    part = whole.with_name(f".stallscope-{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(whole)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


_NAMESPACE = re.compile(r"(?:\b\w+::)+")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::")


def short_kernel(name: str, longest: int = 72) -> str:
    """A kernel's name as people say it: no return type, namespaces, parameters; templates while they fit.

    >>> short_kernel("void at::native::(anonymous namespace)::softmax<float, 4>(float*, int)")
    'softmax<float, 4>'
    """
    text = _ANONYMOUS.sub("", name.removeprefix("void "))
    depth, cut = 0, len(text)
    for i, char in enumerate(text):
        depth += (char == "<") - (char == ">" and text[i - 1] != "-")
        if char == "(" and depth == 0 and i > 0:
            cut = i
            break
    head, angle, tail = text[:cut].partition("<")
    # template arguments lose their namespaces too: `at::native::` says nothing and takes the room
    short = head.rpartition("::")[2] + _NAMESPACE.sub("", angle + tail)
    return short if len(short) <= longest else short[: longest - 1] + "…"
