"""Builds the compiled core. Everything else about the package is declared in pyproject.toml.

The core is optional: where no compiler works the build goes on, and the package runs on its Python twins
(`stallscope doctor` says which of the two is active).
"""

from __future__ import annotations

import sys
import sysconfig

from setuptools import Extension, setup

# One wheel for all versions: the core uses nothing of Python, so that of its stable ABI as well. Free-threaded builds
# take no wheels of the stable ABI: there it is for that one version.
STABLE_ABI = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "stallscope.profiler._core",
            sources=["profiler/_core.c"],
            depends=[
                f"profiler/{name}.h" for name in ("_kernels", "_scan", "_parse", "_tokens", "_tokeniser")
            ],
            py_limited_api=STABLE_ABI,
            extra_compile_args=["-O3"] if sys.platform != "win32" else [],
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if STABLE_ABI else {},
)
