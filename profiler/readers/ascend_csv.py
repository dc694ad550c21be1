"""A kernel table of an Ascend profiler on its own: kernel_details.csv, or msprof's op_summary*.csv.

Reads:  every kernel and collective with start, length, shapes and core metrics.
Leaves: everything about the host; a table has no calls and no operators.
"""

from __future__ import annotations

from pathlib import Path

from stallscope.profiler.readers import ascend_pt
from stallscope.profiler.readers.ascend_rank import is_kernel_table
from stallscope.profiler.readers.ascend_table import header_of
from stallscope.profiler.session import Session


def sniff(path: Path) -> bool:
    """A text file whose first line has the columns of a kernel table, by any of their names."""
    return path.is_file() and is_kernel_table(header_of(path))


def read(path: Path) -> Session:
    """Read a kernel table. Raises InputError where no row of it can be used."""
    return ascend_pt.session_of(path, [ascend_pt.read_lone_table(path)], [])
