"""Where CANN is on this machine: its msprof command, its profiling library, its version. Looks, loads nothing."""

from __future__ import annotations

import os
import re

HOME_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_USUAL_HOMES = (
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/latest",
)
_MSPROF = ("tools/profiler/bin/msprof", "bin/msprof")
_MSPTI = ("tools/mspti/lib64/libmspti.so", "lib64/libmspti.so")
_VERSION_LINE = re.compile(r"^\s*(?:Version|version)\s*=\s*\[?([\w.]+)", re.MULTILINE)


def homes() -> list[str]:
    """Folders of CANN that exist: those the environment names, then the usual one."""
    named = [os.environ.get(name, "") for name in HOME_VARIABLES]
    places = dict.fromkeys(os.path.realpath(p) for p in (*named, *_USUAL_HOMES) if p)
    return [p for p in places if os.path.isdir(p)]


def find_msprof() -> str:
    """The msprof command: on PATH, else in CANN's folder; "" if there is none."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder or ".", "msprof")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    found = [os.path.join(home, part) for home in homes() for part in _MSPROF]
    return next((p for p in found if os.path.isfile(p) and os.access(p, os.X_OK)), "")


def find_mspti() -> str:
    """libmspti.so where the loader or torch_npu would find it; "" if there is none."""
    preloaded = [p for p in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if "libmspti.so" in p]
    loadable = [
        os.path.join(folder, "libmspti.so")
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        if folder
    ]
    installed = [os.path.join(home, part) for home in homes() for part in _MSPTI]
    return next((p for p in (*preloaded, *loadable, *installed) if os.path.isfile(p)), "")


def version() -> str:
    """CANN's version, "" if it is not told."""
    for home in homes():
        for name in ("version.info", "version.cfg", "ascend_toolkit_install.info"):
            for folder in (home, *_architectures(home)):
                found = _version_in(os.path.join(folder, name))
                if found:
                    return found
    return ""


def _architectures(home: str) -> list[str]:
    return [os.path.join(home, n) for n in ("x86_64-linux", "aarch64-linux", "compiler", "runtime")]


def _version_in(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = _VERSION_LINE.search(file.read(10_000))
    except OSError:
        return ""
    return found[1] if found else ""


def driver_version() -> str:
    """The driver's version, "" if it is not told."""
    return _version_in("/usr/local/Ascend/driver/version.info")


def device_nodes() -> list[str]:
    """Device files of NPUs."""
    try:
        return sorted(n for n in os.listdir("/dev") if re.fullmatch(r"davinci\d+", n))
    except OSError:
        return []
