"""What to do with text that is not quite JSON: the tolerant side of both trace-event tokenisers.

Reads:  one damaged event, string or nested value at a time, and gives back strict JSON for it.
Leaves: everything that is fine. The tokenisers come here only with what they cannot read, so that one bad
        event costs one event and a file without faults costs nothing.

Faults seen in real files: quotes and backslashes not escaped (Windows paths), a quote or bracket lost, raw
control characters, bytes that are no UTF-8, `inf` and `nan`, words of Python, the end of the file missing.
Each repair is counted once per kind, with the place of the first.
"""

from __future__ import annotations

import re
import sys

import msgspec

from stallscope.profiler.notes import Notes, Severity

IN_STRING = rb'[^"\\]*(?:\\.[^"\\]*)*' + (b"+" if sys.version_info >= (3, 11) else b"")
"""What stands between quotes, as a pattern with DOTALL. Python 3.10 cannot be told to keep no way back for each escape,
of which a text with millions of them takes 100 bytes apiece."""
MAX_DEPTH = 96
"""Levels of a nested argument; deeper ones count as no value. The compiled core has the same limit."""
_EVENT_KEYS = rb"ph|name|cat|pid|tid|ts|dur|id|id2|args|bp|s|tts|tdur|cname|sf|scope"
_EVENT_START = re.compile(rb'\{\s*"(?:' + _EVENT_KEYS + rb')"\s*:')
_PHASE = re.compile(rb'"ph"\s*:\s*"')
_NEXT_OBJECT = re.compile(rb"\}\s*,?\s*\{")
_LIST_END = re.compile(rb'\}\s*\](?=\s*(?:,\s*"[^"\\]{1,100}"\s*:|\}\s*(?:[{\[]|$)|$))')
_LOOK_AHEAD = 4096
_MAX_PENDING = 4096
_INFINITE = (float("inf"), float("-inf"))

_SPACE = re.compile(rb"[ \t\r\n]*")
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_QUOTE = re.compile(rb'\\.|"', re.DOTALL)
_BARE_KEY = re.compile(rb"[\w .$@#/()%-]{1,200}?(?=[\"']?\s*:)")
_NUMBER = re.compile(rb"([+-]?)(\d*)(?:(\.)(\d*))?(?:[eE]([+-]?\d+))?(?=[ \t\r\n,}\]]|$)")
NONFINITE = re.compile(
    rb"[+-]?(?:nan(?:\((?:ind|snan)\))?|inf(?:inity)?|1\.#(?:inf|ind|qnan|snan)\d*)(?=[ \t\r\n,}\]]|$)",
    re.IGNORECASE,
)
_WORD = re.compile(rb"(true|false|null|True|False|None|undefined)(?=[ \t\r\n,}\]]|$)")
_WORDS = {b"True": b"true", b"False": b"false", b"None": b"null", b"undefined": b"null"}
_LOST_CLOSING = re.compile(rb'[\w .$@#/()%-]{1,64}"\s*:')
_BRACKETS = re.compile(rb'"' + IN_STRING + rb'(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
MAX_DIGITS = 4000
_LOST_OPENING = re.compile(rb'([^",{}\[\]\\\r\n]+)"(?=\s*[,}\]])')
_BARE = re.compile(rb"[^,{}\[\]\"\r\n]*")

_KEY_AHEAD = rb'(?:"(?:[^"\\]|\\.){0,200}"|[\w .$@#/()%-]{1,200}"?)\s*:'
_KEY = re.compile(rb'"(?:[^"\\]|\\.){0,200}"\s*:')
# What stands behind the quote that closes a value of an object, of a list, and a key.
_CLOSES = {
    b"{": re.compile(rb"\s*(?:,?\s*" + _KEY_AHEAD + rb"|,?\s*\}\s*(?:[,}\]]|$))"),
    b"[": re.compile(rb"\s*(?:,\s*[\"\[{\d\-tfn]|\]\s*(?:[,}\]]|$))"),
    b":": re.compile(rb"\s*:"),
}
# The same for a quote behind a backslash, which closes only where nothing else makes sense.
_CLOSES_SURELY = re.compile(rb'\s*(?:,\s*"[^"\\,:{}\[\]]{1,64}"\s*:|\}\s*(?:[,}\]]|$))')

_ESCAPE = re.compile(
    r"\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_PLAIN_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONTROL = re.compile(r"[\x00-\x1f]")
_WRITTEN = str.maketrans({"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_ESCAPED_CONTROL = re.compile(r"[\b\f\n\r\t]")
_DRIVE = re.compile(r"[A-Za-z]:[\b\f\n\r\t]")

_STRING_DECODER = msgspec.json.Decoder(str)

_TEXTS: dict[str, tuple[Severity, str]] = {
    "bad-escape": ("warning", "backslashes that escape nothing were read as they are (paths of Windows)"),
    "bad-utf8": ("warning", "texts held bytes that are no UTF-8; shown as U+FFFD"),
    "control-character": ("info", "texts held raw control characters"),
    "not-finite": ("warning", "numbers were NaN or infinite and count as no value"),
    "bad-argument": ("warning", "nested arguments were not valid JSON and were repaired"),
    "too-deep": ("warning", f"nested arguments over {MAX_DEPTH} levels deep count as no value"),
    "stray-bracket": ("info", "brackets between events that close nothing were skipped"),
    "bad-event-repaired": ("warning", "damaged events were repaired"),
    "stray-zeros": ("info", "zero bytes between events were skipped"),
    "bad-event-skipped": ("data_loss", "damaged events could not be repaired and are missing"),
    "file-cut": ("data_loss", "the file ends inside an event, which is missing; the file was cut"),
}


class Damaged(Exception):
    """The text makes no sense even with tolerance."""


class Cut(Damaged):
    """The text ends before the value does."""


class Mender:
    """Repairs one kind of fault per method, and counts. Offsets are bytes in the unpacked input."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        # Faults inside the event that is being read, by place: it may be read again, after more text came or
        # because the whole event turns out to be damaged.
        self._pending: dict[tuple[int, str], int] = {}

    def count(self, code: str, offset: int, count: int = 1) -> None:
        """Count a fault at a byte of the input, once however often it is met. Below 0 stands -1 - the event's number."""
        if count <= 0:
            return
        self._pending[offset, code] = count
        if len(self._pending) > _MAX_PENDING:
            self.settle(_MAX_PENDING // 2)

    def settle(self, keep: int = 0) -> None:
        """Put the counts into the notes, but for the last ones."""
        while len(self._pending) > keep:
            offset, code = place = next(iter(self._pending))
            severity, text = _TEXTS[code]
            first = f"byte {offset}" if offset >= 0 else f"event {-1 - offset}"
            self.notes.add(code, severity, text, self._pending.pop(place), first)

    def _take(self, other: Mender) -> None:
        other.settle()
        self.notes.extend(other.notes)

    def _forget(self, offset: int) -> None:
        """The event at this offset is read in another way: what was counted in it counts anew."""
        while self._pending and (place := next(reversed(self._pending)))[0] >= offset:
            del self._pending[place]

    # -- texts -------------------------------------------------------------------------------------

    def clean_text(self, raw: bytes, offset: int) -> bytes:
        """The UTF-8 text of a string as written between its quotes, however it is escaped."""
        return self.text(raw, offset).encode("utf-8", "replace")

    def text(self, raw: bytes, offset: int) -> str:
        """As `clean_text`, as str."""
        try:
            plain = _STRING_DECODER.decode(b'"%b"' % raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # not strict JSON
        else:
            return self.as_path(plain, offset) if is_mangled_path(plain) else plain
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            text = raw.decode("utf-8", "replace")
            self.count("bad-utf8", offset)
        if _CONTROL.search(text):
            self.count("control-character", offset)
        if "\\" not in text:
            return text
        bad = sum(_is_bad(m[1]) for m in _ESCAPE.finditer(text)) + (len(text) - len(text.rstrip("\\"))) % 2
        if bad:
            self.count("bad-escape", offset, bad)
            return _ESCAPE.sub(_unescape_path, text)
        plain = _ESCAPE.sub(_unescape, text)
        return self.as_path(plain, offset) if _is_path(text, plain) else plain

    def as_path(self, text: str, offset: int) -> str:
        """A text whose control characters were meant as backslash and letter."""
        self.count("bad-escape", offset, len(_ESCAPED_CONTROL.findall(text)))
        return text.translate(_WRITTEN)

    def _soft(self, window: bytes, offset: int) -> tuple[int, bytes] | None:
        """The event at the start of a window if only texts and numbers in it are at fault: its length and
        strict JSON for it. None if its structure is damaged; raises Cut if it goes on behind the window."""
        trial = Mender(Notes())
        parser = Parser(trial, window, offset)
        try:
            parser.value(b"[", 0)
        except Cut:
            if parser.hard:
                return None
            raise
        except Damaged:
            return None
        if parser.hard:
            return None
        self._take(trial)
        return parser.at, bytes(parser.out)

    def clean_json(self, raw: bytes, offset: int) -> bytes:
        """Strict JSON for a nested value; text that stays beyond repair becomes a JSON string."""
        self.count("bad-argument", offset)
        parser = Parser(self, raw, offset, keep=False)
        try:
            parser.value(b"[", 0)
            return bytes(parser.out)
        except Damaged:
            return msgspec.json.encode(raw.decode("utf-8", "replace"))

    # -- events ------------------------------------------------------------------------------------

    def repair(self, window: bytes, offset: int, final: bool) -> tuple[int, bytes]:
        """What to skip at a damaged element, and one event to take in its place (b"" for none).

        A skip of 0 asks for a longer window; with `final` there is none, and the skip is never 0.
        """
        self._forget(offset)
        if wraps_event(window):
            self.count("stray-bracket", offset)
            return 1, b""
        if window[:1] == b"{":
            try:
                if soft := self._soft(window, offset):
                    return soft
            except Cut:
                if not final:
                    return 0, b""
        boundary = self._next_event(window, final)
        if boundary is None and not final:
            return 0, b""
        if boundary is not None:
            return boundary, self._mended(window[:boundary], offset)
        # the last event of the list, or of what is left of the file
        for end in _LIST_END.finditer(window):
            parser = self._parse(window[: end.end() - 1], offset, cut=True)
            if parser is not None and not parser.rest().strip(b" \t\r\n,"):
                return end.end() - 1, self._mended(window[: end.end() - 1], offset)
        last = _LIST_END.search(window)
        if last and window.rstrip().endswith(b"}") and not self._is_cut(window, offset):
            return last.end() - 1, self._mended(window[: last.end() - 1], offset)
        if not self._is_stray(window, offset):
            self.count("file-cut" if window.lstrip()[:1] == b"{" else "bad-event-skipped", offset)
        return len(window), b""

    def _is_stray(self, element: bytes, offset: int) -> bool:
        """Whether there is no event here at all, but brackets that close nothing, or zeros of a disk that was full."""
        if element.strip(b" \t\r\n,]}:\0") != b"":
            return False
        self.count("stray-zeros" if b"\0" in element else "stray-bracket", offset)
        return True

    def _is_cut(self, window: bytes, offset: int) -> bool:
        """Whether nothing is wrong with an event but that it goes on behind the window."""
        try:
            return self._soft(window, offset) is not None
        except Cut:
            return True

    def _parse(self, element: bytes, offset: int, cut: bool) -> Parser | None:
        element = element.strip(b" \t\r\n,")
        trial = Mender(Notes())  # its counts count only if the result is taken
        parser = Parser(trial, element if element[:1] == b"{" else b"{" + element, offset, cut=cut)
        try:
            parser.value(b"[", 0)
        except Damaged:
            return None
        return parser

    def _mended(self, element: bytes, offset: int) -> bytes:
        """Strict JSON for a damaged element, or b"" if there is no event to be had."""
        if self._is_stray(element, offset):
            return b""
        parser = self._parse(element, offset, cut=False)
        if parser is None or not _PHASE.search(bytes(parser.out)):
            self.count("bad-event-skipped", offset)
            return b""
        self._take(parser.mender)
        self.count("bad-event-repaired", offset)
        self.count("bad-event-skipped", offset, len(_PHASE.findall(parser.rest())))
        return bytes(parser.out)

    def _next_event(self, window: bytes, final: bool) -> int | None:
        """Where the next event begins; None if none does, or more text is needed to tell."""
        for match in _EVENT_START.finditer(window, 1):
            at = match.start()
            before = window[:at].rstrip(b" \t\r\n")[-1:]
            if before in (b":", b"["):
                continue  # arguments, or the first of a list inside the event
            ahead = window[at : at + _LOOK_AHEAD]
            neighbour = _NEXT_OBJECT.search(ahead, 1)
            phase = _PHASE.search(ahead)
            if phase and (neighbour is None or phase.start() < neighbour.start()):
                return at
            if neighbour is None and len(ahead) < _LOOK_AHEAD and not final:
                return None
        return None


def _is_bad(escape: str) -> bool:
    if escape[0] == "u" and len(escape) == 5:
        return 0xD800 <= int(escape[1:], 16) < 0xE000
    return len(escape) == 1 and escape not in _PLAIN_ESCAPES


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] != "u":
        return _PLAIN_ESCAPES[escape]
    code = int(escape[1:5], 16)
    if len(escape) > 5:
        code = 0x10000 + ((code - 0xD800) << 10) + int(escape[7:], 16) - 0xDC00
    return chr(code)


def _unescape_path(match: re.Match[str]) -> str:
    """In a text with backslashes that escape nothing, only those that can mean nothing else do."""
    escape = match[1]
    if escape in ('"', "\\", "/"):
        return escape
    if escape[0] == "u" and len(escape) > 1:
        return "\N{REPLACEMENT CHARACTER}" if _is_bad(escape) else _unescape(match)
    return match[0]


def _is_path(raw: str, text: str) -> bool:
    return is_mangled_path(text) and _CONTROL.search(raw) is None


def is_mangled_path(text: str) -> bool:
    """Whether control characters in a text came of a path: behind a drive, or before a Python file's end.

    Stacks of many frames have line ends between frames, which is right.
    """
    if _ESCAPED_CONTROL.search(text) is None:
        return False
    file_end = text.find(".py(")
    return _DRIVE.match(text) is not None or _ESCAPED_CONTROL.search(text[: max(file_end, 0)]) is not None


class Parser:
    """A forgiving parser of one value that writes strict JSON to `out`; what needs no repair as it is.

    `soft` counts faults inside texts and numbers, `hard` those of the structure. With `cut` the text may go on
    behind its end; without, a bracket that is missing there was lost. With `keep`, the lists and objects in an
    event and in its arguments are kept as they are written, as the tokenisers do.
    """

    def __init__(
        self, mender: Mender, text: bytes, offset: int, *, cut: bool = True, keep: bool = True
    ) -> None:
        self.mender = mender
        self.cut = cut
        self.keep = keep
        self.text = text
        self.offset = offset
        self.at = 0
        self.out = bytearray()
        self.soft = 0
        self.hard = 0

    def rest(self) -> bytes:
        return self.text[self.at :]

    def _skip(self, pattern: re.Pattern[bytes]) -> bytes:
        match = pattern.match(self.text, self.at)
        assert match is not None  # these patterns match the empty text
        self.at = match.end()
        return match[0]

    def _peek(self) -> bytes:
        return self.text[self.at : self.at + 1]

    def value(self, inside: bytes, depth: int) -> None:
        """Parse one value inside `{` or `[`; raises Damaged or Cut."""
        self._skip(_SPACE)
        head = self._peek()
        if not head:
            raise Cut
        if head == b'"':
            self._string(inside)
        elif head in (b"{", b"["):
            self._nested(head, depth)
        else:
            self._bare()

    def _nested(self, opening: bytes, depth: int) -> None:
        argument = depth == 2 or (depth == 1 and not self.out.endswith(b'"args":'))
        if argument and self.keep and self._kept_whole():
            return
        if depth > MAX_DEPTH + 2:
            raise Damaged
        self.at += 1
        self.out += opening
        (self._object if opening == b"{" else self._list)(depth + 1)

    def _kept_whole(self) -> bool:
        """A list or object in the arguments whose brackets are right is kept as text, cleaned if need be."""
        end, deepest = nested_end(self.text, self.at)
        if end <= 0:
            return False
        raw = self.text[self.at : end]
        self.at = end
        if deepest > MAX_DEPTH:
            self.mender.count("too-deep", self.offset + self.at)
            self.hard += 1
            self.out += b"null"
        elif is_strict(raw):
            self.out += raw
        else:
            self.soft += 1
            self.out += self.mender.clean_json(raw, self.offset + self.at)
        return True

    def _ended(self, closing: bytes) -> None:
        """The text is at its end inside a bracket."""
        if self.cut:
            raise Cut
        self.hard += 1
        self.out += closing

    def _object(self, depth: int) -> None:
        first = True
        while True:
            between = self._skip(_BETWEEN)
            head = self._peek()
            if not head:
                return self._ended(b"}")
            if head == b"}":
                self.hard += b"," in between
                break
            self.hard += between.count(b",") != (not first)
            if head == b"]":  # a bracket of the wrong kind
                raise Damaged
            if not first:
                self.out += b","
            first = False
            self._key()
            self.value(b"{", depth)
        self.at += 1
        self.out += b"}"

    def _key(self) -> None:
        if self._peek() == b'"':
            self._string(b":")
        else:
            match = _BARE_KEY.match(self.text, self.at)
            if match is None:
                raise Damaged
            self.hard += 1
            self.at = match.end() + (self.text[match.end() : match.end() + 1] in (b'"', b"'"))
            self.out += msgspec.json.encode(match[0].decode("utf-8", "replace"))
        self._skip(_SPACE)
        if not self._peek():
            raise Cut
        if self._peek() != b":":
            raise Damaged
        self.at += 1
        self.out += b":"

    def _list(self, depth: int) -> None:
        first = True
        while True:
            between = self._skip(_BETWEEN)
            head = self._peek()
            if not head:
                return self._ended(b"]")
            if head == b"]":
                self.hard += b"," in between
                break
            if head == b"}" or (head == b'"' and _KEY.match(self.text, self.at)):
                # the list was never closed: it ends where its object does, or at the object's next key
                self.hard += 1
                self.out += b"]"
                return
            self.hard += between.count(b",") != (not first)
            if not first:
                self.out += b","
            first = False
            self.value(b"[", depth)
        self.at += 1
        self.out += b"]"

    def _string(self, inside: bytes) -> None:
        start = self.at + 1
        closes = _CLOSES[inside]
        inner = 0
        for match in _QUOTE.finditer(self.text, start):
            end = match.end()
            if len(match[0]) == 1:
                if closes.match(self.text, end):
                    break
                inner += 1
            elif match[0] == b'\\"' and inside != b":" and _CLOSES_SURELY.match(self.text, end):
                inner += 1
                break
        else:
            raise Cut
        self.hard += inner
        raw = self.text[start : end - 1]
        if inside == b"{" and raw.rstrip().endswith(b",") and _LOST_CLOSING.match(self.text, end):
            # this quote opens the next key: the one that closes the value was lost
            self.hard += 1
            self.at = end - 1
            self.out += msgspec.json.encode(self.mender.text(raw.rstrip()[:-1], self.offset + self.at))
            return
        self.at = end
        written = self.text[start - 1 : end]
        if is_strict(written):
            self.out += written
            return
        self.soft += 1
        plain = self.mender.text(raw, self.offset + start)
        self.out += msgspec.json.encode(plain.encode("utf-8", "replace").decode())

    def _bare(self) -> None:
        if match := NONFINITE.match(self.text, self.at):
            self.mender.count("not-finite", self.offset + self.at)
            self.soft += 1
            self.out += b"null"
        elif match := _WORD.match(self.text, self.at):
            self.hard += match[0] in _WORDS
            self.out += _WORDS.get(match[0], match[0])
        elif (match := _NUMBER.match(self.text, self.at)) and (match[2] or match[4]):
            self._number(match)
        elif match := _LOST_OPENING.match(self.text, self.at):
            self.hard += 1
            self.out += msgspec.json.encode(match[1].decode("utf-8", "replace"))
        else:
            match = _BARE.match(self.text, self.at)
            assert match is not None  # it matches the empty text
            self.hard += 1
            word = match[0].strip().decode("utf-8", "replace")
            self.out += msgspec.json.encode(word or None)
        self.at = match.end()

    def _number(self, match: re.Match[bytes]) -> None:
        if len(match[0]) > MAX_DIGITS or float(match[0]) in _INFINITE:
            self.mender.count("not-finite", self.offset + self.at)
            self.soft += 1
            self.out += b"null"
            return
        sign = b"-" if match[1] == b"-" else b""
        whole = match[2].lstrip(b"0") or b"0"
        fraction = b"." + match[4] if match[4] else b""
        exponent = b"e" + match[5] if match[5] else b""
        written = sign + whole + fraction + exponent
        if written == match[0].replace(b"E", b"e"):
            self.out += match[0]
            return
        self.soft += 1
        self.hard += match[1] == b"+" or not match[2]
        self.out += written


def wraps_event(text: bytes) -> bool:
    """Whether this is a list whose first item is an event: one bracket too many."""
    return text[:1] == b"[" and _EVENT_START.match(text[:1000].lstrip(b"[ \t\r\n")) is not None


def is_strict(text: bytes) -> bool:
    """Whether the text is one value of strict JSON."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def nested_end(text: bytes, at: int = 0, most: int = 1 << 62) -> tuple[int, int]:
    """Behind the list or object at `at`, and how deep it nests. 0: it goes on behind the text; -1: a bracket
    is closed by one of the other kind, or it nests deeper than `most`."""
    closing: list[bytes] = []
    deepest = 0
    for match in _BRACKETS.finditer(text, at):
        token = match[0]
        if token in (b"{", b"["):
            closing.append(b"}" if token == b"{" else b"]")
            deepest = max(deepest, len(closing))
            if deepest > most:
                return -1, deepest
        elif token in (b"}", b"]"):
            if closing.pop() != token:
                return -1, deepest
            if not closing:
                return match.end(), deepest
        elif len(token) == 1 or not token.endswith(b'"'):
            return 0, deepest  # an open string
    return 0, deepest
