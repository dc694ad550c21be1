"""`stallscope run`: run a script under observation, then say where it waits."""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stallscope.cli.options import (
    check_output,
    choose_rules,
    fail_status,
    progress,
    rule_options,
    stderr_console,
)
from stallscope.cli.script import TargetCommand
from stallscope.profiler.errors import StallscopeError

if TYPE_CHECKING:
    from stallscope.analyzers.finding import Report
    from stallscope.profiler.recorder.settings import Settings
    from stallscope.profiler.session import Session


@click.command("run", cls=TargetCommand)
@click.option("-o", "--output", metavar="DIR", help="Where the session goes (default NAME-TIME.stallscope).")
@click.option("--html", metavar="FILE", help="Write the interactive report.")
@click.option("--json", "json_", metavar="FILE", help="Write the report as JSON.")
@click.option("--trace", metavar="FILE", help="Write a Chrome trace with the findings drawn in.")
@click.option("--force", is_flag=True, help="Overwrite what exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing of our own; errors only.")
@click.option("--no-report", is_flag=True, help="Record and save; do not analyse.")
@click.option("--keep-raw", is_flag=True, help="Keep the raw recording beside the session.")
@click.option(
    "--python",
    type=click.Choice(["sample", "calls", "off"]),
    default="sample",
    show_default=True,
    help="Python functions: sample stacks, record every call inside the operator window, or neither.",
)
@click.option(
    "--rate", type=int, default=100, show_default=True, metavar="HZ", help="Stack samples a second."
)
@click.option(
    "--window",
    default="auto",
    show_default=True,
    metavar="auto|all|STEPS|WARMUP:STEPS",
    help="When operators are recorded: from the first step until the caps, always, or for so many steps.",
)
@click.option("--max-events", type=int, default=100_000, show_default=True, metavar="N",
              help="Cap on recorded operators and kernels.")  # fmt: skip
@click.option("--max-seconds", type=int, default=120, show_default=True, metavar="S",
              help="Cap on the time operators are recorded.")  # fmt: skip
@click.option("--no-ops", is_flag=True, help="Record no operators and kernels; Python and the host only.")
@click.option("--no-shapes", is_flag=True, help="Leave out operator shapes (cheaper; no roofline).")
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "xpu", "npu", "cpu", "off"]),
    default="auto",
    show_default=True,
    help="Whose kernels: what the script uses, that device, none but host operators (cpu), or neither (off).",
)
@click.option("--npu-level", type=click.Choice(["Level0", "Level1", "Level2"]), default="Level1", show_default=True,
              help="Ascend: how much the NPU tells; Level0 has no core metrics, Level2 adds the runtime and AI CPU.")  # fmt: skip
@click.option("--npu-metrics", metavar="GROUP", default="PipeUtilization", show_default=True,
              help="Ascend: which core counters, one group a run (Memory, MemoryAccess, ArithmeticUtilization, ...).")  # fmt: skip
@click.option("--npu-mstx", is_flag=True, help="Ascend: show marks on the NPU's own timeline too.")
@rule_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run SCRIPT, a module or code as `python` would, record it, and report where it waits.

    Options end at the target; what follows is the target's own. Its output, input, signals and exit
    status are what they are without us; the verdict goes to standard error.

    \b
    stallscope run infer.py --prompt "hello"
    stallscope run --window 2:20 -m mypackage.serve
    """
    target: list[str] = ctx.meta["stallscope.target"]
    if not target or (target[0] in ("-m", "-c") and len(target) == 1):
        raise click.UsageError("Name a script, or -m MODULE, or -c CODE.", ctx)
    from stallscope.profiler.recorder import launch

    if not launch.target_exists(target):
        ctx.exit(launch.run_unrecorded(target))
    run = _Run(target, options)
    status = run.record()
    found = run.finish(status)
    sys.stdout.flush()
    sys.stderr.flush()
    ctx.exit(launch.die_like(status) or found)


class _Run:
    """One run: everything is checked in the constructor, before the target starts."""

    def __init__(self, target: list[str], options: dict[str, Any]) -> None:
        from stallscope.profiler.recorder import launch
        from stallscope.profiler.recorder.format import RAW_FOLDER

        self.target = target
        self.options = options
        self.force = bool(options["force"])
        self.quiet = bool(options["quiet"])
        self.settings = _settings(options)
        launch.check_interpreter()
        launch.check_device(options["device"])
        for warning in launch.npu_warnings(options["device"]):
            self._say(f"stallscope: {warning}")
        self.rules = choose_rules(options["select"], options["ignore"])
        self.files = {
            name: check_output(options[name], self.force)
            for name in ("html", "json_", "trace")
            if options[name]
        }
        default = f"{launch.target_name(target)}-{time.strftime('%Y%m%d-%H%M%S')}.stallscope"
        self.folder = Path(options["output"] or default)
        launch.prepare_folder(self.folder, self.force)
        self.raw = self.folder / RAW_FOLDER

    def record(self) -> int:
        """Run the target; returns its wait status."""
        from stallscope.profiler.recorder import launch

        return launch.run_target(self.target, self.raw, self.settings)

    def finish(self, status: int) -> int:
        """Merge, save, analyse, print. Returns 1 if --fail-on asks for it; the target's status comes first.

        A fault here must not change how the target ended: it is told, and the raw recording stays.
        """
        try:
            with progress(3 + len(self.files)) as stage:
                session = self._merge(stage)
                report = self._report(session, stage)
        except KeyboardInterrupt:
            self._say(f"interrupted; the raw recording is kept. Next: {_shell('analyze', self.folder)}")
            return 0
        except (StallscopeError, OSError) as error:
            click.echo(f"stallscope: {error}", err=True)
            self._say(f"the recording is kept. Next: {_shell('analyze', self.folder)}")
            return 0
        except Exception:  # noqa: BLE001 - a fault of ours must not become the target's exit status
            traceback.print_exc()
            self._say(f"stallscope: this is a fault of ours. Next: {_shell('analyze', self.folder)}")
            return 0
        if report is None:
            self._say(f"session: {self.folder}\nnext: {_shell('analyze', self.folder)}")
            return 0
        self._print(session, report)
        return fail_status(report, self.options["fail_on"]) if status == 0 else 0

    def _merge(self, stage: Callable[[str], None]) -> Session:
        import shutil

        from stallscope.profiler.readers import recording_dir
        from stallscope.profiler.recorder import offline

        unfinished = offline.analyse(self.raw, stage).unfinished
        stage("merge the recording")
        session = recording_dir.read(self.folder)
        stage("save the session")
        session.save(self.folder, force=True)
        if unfinished:
            self._say(f"stallscope: NPU windows are not analysed; their raw data stays in {self.raw}")
        elif not self.options["keep_raw"]:
            shutil.rmtree(self.raw)
        return session

    def _report(self, session: Session, stage: Callable[[str], None]) -> Report | None:
        if self.options["no_report"] and not self.files and self.options["fail_on"] is None:
            return None
        from stallscope.analyzers import analyze

        stage("analyse")
        report = analyze(session, self.rules)
        for name, path in self.files.items():
            stage(f"write {path.name}")
            _exporter(name).export(session, report, path)
        return report

    def _print(self, session: Session, report: Report) -> None:
        if self.quiet:
            return
        from stallscope.exporters import terminal

        sys.stdout.flush()
        terminal.render(session, report, stderr_console())
        for name, path in self.files.items():
            self._say(f"{name.strip('_')}: {path}")
        self._say(f"session: {self.folder}")
        self._say(f"next: {_shell('report', self.folder)}")

    def _say(self, text: str) -> None:
        if not self.quiet:
            click.echo(text, err=True)


def _settings(options: dict[str, Any]) -> Settings:
    from stallscope.profiler.recorder.settings import Settings

    settings = Settings(
        python=options["python"],
        rate_hz=options["rate"],
        ops=not options["no_ops"],
        device=options["device"],
        max_events=options["max_events"],
        max_seconds=options["max_seconds"],
        shapes=not options["no_shapes"],
        npu_level=options["npu_level"],
        npu_metrics=options["npu_metrics"],
        npu_mstx=options["npu_mstx"],
    )
    return settings.with_window(options["window"])


def _exporter(name: str) -> Any:
    from importlib import import_module

    modules = {"html": "html", "json_": "json_report", "trace": "chrome_trace"}
    return import_module(f"stallscope.exporters.{modules[name]}")


def _shell(command: str, path: Path) -> str:
    """A command line to copy."""
    return shlex.join(["stallscope", command, str(path)])


__all__ = ["command"]
