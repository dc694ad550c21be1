"""Text of untrusted traces on its way into a page: cleaned, escaped, and never formatted by hand.

`el` builds elements; plain strings are escaped, only `Markup` goes through as it is, so forgetting
to escape is not possible. `json_island` is the one filter for data inside a script element.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

LONGEST_TEXT = 2_000
"""Characters of one name that a page keeps; C++ template names run to many thousands."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"br", "hr", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | int | Iterable[Content] | None"


def clean(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text a page can hold: control characters, lone surrogates and direction overrides (which could
    make one name look like another) become U+FFFD; what is longer than `longest` ends in "…"."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return _UNPRINTABLE.sub("\ufffd", text)


# most texts are short and need nothing: one look decides
_PLAIN = re.compile(r"[A-Za-z0-9 _.,:;%()\[\]{}/+*=#@|~-]{0,200}")


def is_plain(text: str) -> bool:
    """Whether a text is short and can stand in a page as it is."""
    return _PLAIN.fullmatch(text) is not None


# as `html.escape`, whose import reads all named characters of HTML; "&" first, which the others contain
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}


def escape(text: str) -> Markup:
    """Text for element content or a quoted attribute."""
    if is_plain(text):
        return Markup(text)
    safe = clean(str(text))
    for character, written in _ESCAPES.items():  # a fortieth of what `str.translate` takes for a long name
        safe = safe.replace(character, written)
    return Markup(safe)


def el(tag: str, content: Content = None, /, **attributes: str | int | bool | None) -> Markup:
    """One element. `class_` is class, other underscores are hyphens; None and False leave out an attribute.

    >>> el("p", "1 < 2", class_="note", data_id=3)
    '<p class="note" data-id="3">1 &lt; 2</p>'
    """
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = _attribute(name)
        parts.append(f" {key}" if value is True else f' {key}="{escape(str(value))}"')
    parts.append(">")
    if tag not in _VOID:
        parts.append(join(content))
        parts.append(f"</{tag}>")
    return Markup("".join(parts))


@lru_cache(maxsize=256)
def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def join(content: Content) -> Markup:
    """Markup of any content: nested lists are flattened, None is nothing, strings are escaped."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int):
        return escape(str(content))
    return Markup("".join(join(item) for item in content))


# What could end a script element or start a comment in it, and the two line ends JavaScript once knew.
_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_IN_SCRIPT_RE = re.compile("[<>&\u2028\u2029]")


def json_island(data: Any) -> Markup:
    """Data as JSON text that is safe inside `<script type="application/json">`, pure ASCII."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(_IN_SCRIPT_RE.sub(lambda m: _IN_SCRIPT[m[0]], text))
