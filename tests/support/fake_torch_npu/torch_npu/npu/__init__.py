"""Devices of the fake: one, which does nothing."""

from __future__ import annotations

from typing import Any

from torch_npu._contract import by_contract
from torch_npu.npu.mstx import mstx

__all__ = ["current_stream", "device_count", "get_device_name", "is_initialized", "mstx", "set_device"]

_initialized = False


@by_contract("is_initialized")
def is_initialized() -> bool:
    return _initialized


@by_contract("_lazy_init")
def _lazy_init() -> None:
    global _initialized
    _initialized = True


def set_device(device: object) -> None:
    import torch_npu

    torch_npu.npu._lazy_init()


def synchronize() -> None:
    return


@by_contract("device_count")
def device_count() -> int:
    return 1


@by_contract("get_device_name")
def get_device_name(device_name: object) -> str:
    return "Ascend910B3"


@by_contract("current_stream")
def current_stream(device: object) -> Any:
    return "stream 2"
