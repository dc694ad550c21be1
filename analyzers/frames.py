"""What the name of a Python frame tells: whose code it is, where it is, and whether it only waits.

Names come as the sources write them: `path/file.py(12): function` (Kineto), `function (file.py:12)` (our stack
samples, which tell the whole path in an argument), `$file.py:12 function` (JAX), `<built-in method item of Tensor
object at 0x7f...>`. Everything here is called once per distinct name.
"""

from __future__ import annotations

import re

_LIBRARY = re.compile(
    r"site-packages|dist-packages|<built-in|<frozen|<string>|<eval_with_key>|nn\.Module:|lib/python\d|"
    r"^\$?(?:torch|torch_npu|triton|numpy|jax|jaxlib)[/_.]"
)
# Standard-library files that show up around waiting, calling and copying. Bare names only: a user's own
# file of such a name inside a folder stays the user's.
_STANDARD = re.compile(
    r"^\$?(?:threading|queue|selectors|socket|ssl|contextlib|functools|copy|logging/\S+|subprocess|inspect|"
    r"dataclasses|enum|typing|abc|_weakrefset|weakref|runpy|signal|codecs|asyncio/\S+|concurrent/\S+|"
    r"multiprocessing/\S+|json/\S+|importlib/\S+|collections/\S+|re|tempfile|pickle|shutil|gc)(?:\.py)?[(:]"
)
_KINETO = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
_JAX = re.compile(r"^\$(?P<file>\S+?):(?P<line>\d+) (?P<function>.+)$")
_SAMPLE = re.compile(r"^(?P<function>\S+) \((?P<file>[^():]+):(?P<line>\d+)\)$")
_LIBRARY_FILE = re.compile(
    r"site-packages/|dist-packages/|/lib(?:64)?/python\d[\d.]*/|^<|/torch/|/torch_npu/|stallscope/profiler/"
)
_BUILTIN = re.compile(r"^<built-in (?:method|function) (?P<function>[\w.]+)")

_WAITING = re.compile(
    r"^<built-in (?:method|function) (?:acquire|poll|epoll|select|recv\w*|accept|sleep|wait\w*|join|get|kevent)\b"
    r"|^\$?(?:queue|selectors|threading|asyncio/\S+|multiprocessing/\S+)(?:\.py)?[(:].*\b(?:get|select|wait|recv|poll|"
    r"acquire|join|run_once|_run_once)\b"
    r"|^(?:zmq/|uvloop)|^time sleep\b|^(?:get|select|wait|poll|recv\w*|_run_once) \((?:queue|selectors|threading|socket|"
    r"connection|poll|base_events|_socket)\.py:"
)


def is_user_frame(name: str) -> bool:
    """Whether a Python frame's name points into the user's or an engine's code, not a library or builtin.

    >>> is_user_frame("serve/sampler.py(214): pick"), is_user_frame("torch/nn/functional.py(1): linear")
    (True, False)
    """
    return _LIBRARY.search(name) is None and _STANDARD.search(name) is None


def is_user_file(path: str) -> bool:
    """Whether a source file is the user's or an engine's, by its whole path.

    >>> is_user_file("/home/me/serve/sampler.py"), is_user_file("/usr/lib/python3.11/queue.py")
    (True, False)
    """
    return _LIBRARY_FILE.search(path) is None


def has_line(name: str) -> bool:
    """Whether a frame's name tells a file and a line, as built-ins and modules do not.

    >>> has_line("torch/nn/functional.py(1): linear"), has_line("<built-in method linear of object at 0x7f>")
    (True, False)
    """
    return name[:1] != "<" and bool(_KINETO.match(name) or _SAMPLE.match(name) or _JAX.match(name))


def is_waiting_frame(name: str) -> bool:
    """Whether a frame of this name, when innermost, waits for something outside its thread.

    >>> is_waiting_frame("<built-in method acquire of _thread.lock object at 0x7f>")
    True
    """
    return _WAITING.search(name) is not None


def short_place(name: str) -> str:
    """A frame as people write it: file without its folders, line and function.

    >>> short_place("serve/sampler.py(214): pick_tokens"), short_place("<built-in method item of Tensor>")
    ('sampler.py:214 (pick_tokens)', 'item (built-in)')
    """
    match = _KINETO.match(name) or _SAMPLE.match(name) or _JAX.match(name)
    if match:
        return (
            f"{match['file'].replace(chr(92), '/').rpartition('/')[2]}:{match['line']} ({match['function']})"
        )
    builtin = _BUILTIN.match(name)
    return f"{builtin['function']} (built-in)" if builtin else name
