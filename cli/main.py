"""The `stallscope` command: a table of subcommands, each imported only when it is used.

Exit codes: 0 done; 1 a finding at or over `--fail-on`; 2 unusable input or options, or output that cannot be
written; 130 interrupted; 141 the reader of the output went away (`| head`); `run` ends with the target's own status.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from stallscope import __version__
from stallscope.profiler.errors import StallscopeError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("stallscope.cli.run", "Run a script under observation and report where it waits."),
    "analyze": ("stallscope.cli.analyze", "Analyse traces that this or another profiler wrote."),
    "report": ("stallscope.cli.report", "Make the HTML, JSON or text report of a saved session or trace."),
    "export": (
        "stallscope.cli.export",
        "Write the timeline and its findings as a Chrome trace for Perfetto.",
    ),
    "whatif": ("stallscope.cli.whatif", "Predict what a change would save, by replaying the recording."),
    "diff": ("stallscope.cli.diff", "Say what changed from one recording to another, and why."),
    "rules": ("stallscope.cli.rules", "List the rules."),
    "explain": ("stallscope.cli.explain", "Explain one rule: what it finds, its limits, what to try."),
    "doctor": ("stallscope.cli.doctor", "Say what can be recorded on this machine and what is missing."),
}
"""Name -> (module whose `command` it is, one line of help). Help must not cost an import."""


READING = ("analyze", "report", "export", "whatif", "diff")
"""Commands that read recordings, and start no program of the user's."""

INTERRUPTED = 130
READER_GONE = 141
"""As shells report a program that Ctrl-C ended."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in READING:
            # the threads of NumPy's linear algebra, which nothing here uses, each spin for 20 ms once they are started
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StallscopeError as error:
            click.echo(f"stallscope: {error}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            # the reader of our output went away; what is still buffered must not raise again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_GONE)
        except KeyboardInterrupt:
            click.echo("stallscope: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            click.echo(f"stallscope: {where}{error.strerror or error}", err=True)
            ctx.exit(StallscopeError.exit_code)
        except MemoryError:
            click.echo(
                "stallscope: out of memory. Load a part of the trace (--window A..B, --rank N).", err=True
            )
            ctx.exit(StallscopeError.exit_code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="stallscope %(version)s")
def cli() -> None:
    """Find where LLM inference waits, and prove it.

    \b
    stallscope run infer.py          record a script and report on it
    stallscope analyze trace.json.gz report on a trace you already have
    """


def main() -> None:
    """Entry point of the console script and of `python -m stallscope`."""
    try:
        cli(prog_name="stallscope")
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else int(end.code is not None))


def leave(status: int) -> NoReturn:
    """End the process, as `sys.exit`, but leave its memory to the system: to take a trace of four million events apart
    object by object costs a tenth of a second. Where someone watches the process (a profiler, a debugger, coverage)
    it ends as usual."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # says what is wrong with them, as usual
    if sys.getprofile() is not None or sys.gettrace() is not None or "coverage" in sys.modules:
        sys.exit(status)
    atexit._run_exitfuncs()
    os._exit(status)
