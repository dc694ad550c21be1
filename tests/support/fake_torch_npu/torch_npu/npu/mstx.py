"""mstx ranges of the fake: listed in the file FAKE_MSTX names."""

from __future__ import annotations

import os
from typing import Any

from torch_npu._contract import by_contract


def _write(*values: object) -> None:
    if "FAKE_MSTX" in os.environ:
        with open(os.environ["FAKE_MSTX"], "a") as file:
            print(*values, file=file)


class mstx:
    _number = 0

    @staticmethod
    @by_contract("mstx.range_start")
    def range_start(message: str, stream: Any, domain: str) -> int:
        mstx._number += 1
        _write("start", mstx._number, domain, message, "on", stream)
        return mstx._number

    @staticmethod
    @by_contract("mstx.range_end")
    def range_end(range_id: int, domain: str) -> None:
        _write("end", range_id, domain)
