"""The target on a command line: where our options end and what Python is to run begins."""

from __future__ import annotations

from collections.abc import Sequence

import click

TARGET_OPTIONS = ("-m", "-c")


class TargetCommand(click.Command):
    """A command whose options end at the target, as Python's own do: `[options] SCRIPT|-m MODULE|-c CODE [args]`.

    What follows is the target's, however much it looks like an option of ours. It is left in
    `ctx.meta["stallscope.target"]`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, target = split(args, options_with_value(self, ctx))
        ctx.meta["stallscope.target"] = target
        return super().parse_args(ctx, ours)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] SCRIPT|-m MODULE|-c CODE [ARGS]...")


def options_with_value(command: click.Command, ctx: click.Context) -> set[str]:
    """The names of a command's options that are followed by a value."""
    return {
        name
        for parameter in command.get_params(ctx)
        if isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def split(args: Sequence[str], with_value: set[str]) -> tuple[list[str], list[str]]:
    """Our options, and the target with its arguments.

    >>> split(["-o", "out", "--force", "a.py", "-o", "x"], {"-o"})
    (['-o', 'out', '--force'], ['a.py', '-o', 'x'])
    >>> split(["--", "a.py"], set()), split(["-mpkg", "-q"], set())
    (([], ['a.py']), ([], ['-mpkg', '-q']))
    """
    at = 0
    while at < len(args):
        word = args[at]
        if word == "--":
            return list(args[:at]), list(args[at + 1 :])
        if word[:2] in TARGET_OPTIONS and not word.startswith("--"):
            break
        if not word.startswith("-") or word == "-":
            break
        at += 2 if word in with_value else 1
    return list(args[:at]), list(args[at:])
