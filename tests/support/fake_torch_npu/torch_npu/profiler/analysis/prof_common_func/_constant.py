"""Messages, printed on standard output as the real profiler does."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from torch_npu._contract import by_contract, constants

Constant = constants("Constant")


def _stamp(kind: str, message: str) -> str:
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] [{kind}] [{os.getpid()}] profiler.py: {message}"


@by_contract("print_info_msg")
def print_info_msg(message: str) -> None:
    print(_stamp("INFO", message), flush=True)


@by_contract("print_warn_msg")
def print_warn_msg(message: str) -> None:
    print(_stamp("WARNING", message), flush=True)


@by_contract("print_error_msg")
def print_error_msg(message: str) -> None:
    print(_stamp("ERROR", message), flush=True)


def no_exception_func(run: Callable[..., Any]) -> Callable[..., Any]:
    """Errors are printed and gone, as in the real one."""

    @functools.wraps(run)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            print_error_msg(f"Call {run.__name__} failed. Exception: {error}")

    return wrapper
