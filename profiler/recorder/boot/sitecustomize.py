"""Starts the recorder in a Python process whose PYTHONPATH names this folder, before the user's code runs.

It leaves no trace on `sys.path`, lets the sitecustomize it stands in front of run as if it were alone, and
swallows its own faults: the user's program must run whatever happens here.
"""

import importlib
import os
import sys


def _load_package(home: str) -> None:
    """Import the launcher's own stallscope, from where it lies, without touching `sys.path`."""
    if "stallscope" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.join(home, "stallscope")
    spec = spec_from_file_location(
        "stallscope", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError("no stallscope in " + home)
    module = module_from_spec(spec)
    sys.modules["stallscope"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["stallscope"]
        raise


def _start() -> None:
    folder = os.environ.get("STALLSCOPE_RECORDING")
    home = os.environ.get("STALLSCOPE_HOME")
    if not folder or not home or not os.path.isdir(folder):
        return
    try:
        if sys.version_info < (3, 10):  # noqa: UP036 - children may run another Python than ours
            raise RuntimeError("Python 3.10 or newer is needed to record a process")
        _load_package(home)
        from stallscope.profiler.recorder import start_in_child

        start_in_child(folder)
    except Exception as error:  # noqa: BLE001 - whatever it is, the user's program must run
        _complain(folder, error)


def _complain(folder: str, error: Exception) -> None:
    text = f"{type(error).__name__}: {error}"
    text = "".join(c if " " <= c <= "~" and c not in '"\\' else "'" for c in text)[:500]
    try:
        with open(os.path.join(folder, "boot-errors.log"), "a") as log:
            log.write(f'{{"pid":{os.getpid()},"python":"{sys.version.split()[0]}","error":"{text}"}}\n')
    except OSError:
        return


def _run_the_shadowed_one() -> None:
    """Import the sitecustomize that would have run without us. Its errors are the site module's to report."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here or not entry]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            # the import machinery looks for the module it is still loading under this name
            sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":
    _start()
    _run_the_shadowed_one()
