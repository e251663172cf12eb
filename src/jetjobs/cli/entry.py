"""The command line: which command there is, and how it ends when it can't be done."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from jetjobs._version import __version__
from jetjobs.cli.demo import add_demo
from jetjobs.cli.dev import add_dev
from jetjobs.cli.doctor import add_doctor
from jetjobs.cli.failures import ExitCode, Mistake, UserCodeError, exit_code, hide_logins, message_of
from jetjobs.cli.hosts import add_drain, add_hosts
from jetjobs.cli.jobs import add_jobs, add_show_job
from jetjobs.cli.logs import SILENT, configure_logs
from jetjobs.cli.options import Parser
from jetjobs.cli.orders import add_override, add_pause, add_resume
from jetjobs.cli.run import add_init, add_run
from jetjobs.cli.run_changes import add_cancel, add_delete, add_retry
from jetjobs.cli.run_watching import add_logs, add_watch
from jetjobs.cli.runs import add_list, add_show
from jetjobs.cli.shown import show_output, shown
from jetjobs.cli.trigger import add_trigger
from jetjobs.errors import JetJobsError

_EPILOG = """\
Every setting is also read from the environment (JETJOBS_…, NATS_URL, …) and from [tool.jetjobs] in pyproject.toml.
Results go to stdout, everything else to stderr.

exit codes: 0 done · 1 the run didn't succeed, or doctor found a failure · 2 wrong command line, setting or module ·
            3 broker not reachable or refusing · 4 no such job, run or host · 130 Ctrl-C
"""

_USERS_CODE = frozenset({"run", "dev", "init", "demo"})  # what it prints, it prints as it likes

AddOptions = Callable[[Parser], None]
_COMMANDS: dict[str, tuple[AddOptions, str]] = {
    "run": (add_run, "run the jobs of some modules until SIGTERM or Ctrl-C"),
    "dev": (add_dev, "run jobs with a broker of their own, and again whenever the code changes"),
    "init": (add_init, "make stream, job descriptions and consumers exist before hosts are rolled out"),
    "demo": (add_demo, "index this checkout with jobs, to see some run"),
    "trigger": (add_trigger, "ask for a run"),
    "doctor": (add_doctor, "check broker, rights, clock and hosts, and say what to do"),
}
_NOUNS: dict[str, tuple[str, dict[str, tuple[AddOptions, str]]]] = {
    "runs": (
        "what ran",
        {
            "list": (add_list, "the newest runs"),
            "show": (add_show, "everything known of one run"),
            "watch": (add_watch, "runs as they change, until Ctrl-C"),
            "logs": (add_logs, "what a run has logged"),
            "cancel": (add_cancel, "stop runs, or keep them from starting"),
            "retry": (add_retry, "a new run for each that failed"),
            "delete": (add_delete, "let go of runs that have ended"),
        },
    ),
    "jobs": (
        "what can run",
        {
            "list": (add_jobs, "the jobs hosts have described"),
            "show": (add_show_job, "everything known of one job"),
            "pause": (add_pause, "let no run of a job start, on any host; what comes waits"),
            "resume": (add_resume, "let a paused job go on"),
            "override": (add_override, "change how many runs of a job go on at once, over all hosts"),
            "trigger": (add_trigger, "ask for a run"),
        },
    ),
    "hosts": (
        "who runs it",
        {
            "list": (add_hosts, "the hosts that live"),
            "drain": (add_drain, "have hosts take no more runs, and end when theirs have"),
        },
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `jetjobs.cli.failures` lists them."""
    _open_what_is_closed()
    args = parser().parse_args(argv)
    args.debug = getattr(args, "debug", False)
    configure_logs(level=logging.DEBUG if args.debug else SILENT)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Not every terminal can show what jobs say; a list must not end at the first letter it can't.
        sys.stdout.reconfigure(errors="backslashreplace")
    if args.called not in _USERS_CODE:
        show_output()
    try:
        code = int(args.command(args))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (JetJobsError, Mistake, UserCodeError, OSError) as error:  # a folder that can't be written is one too
        return _report(error, debug=args.debug)
    return code


def _open_what_is_closed() -> None:
    """Standard streams that whoever started us has closed lead nowhere, from here on.

    Python has None for them, which not all code expects, and the next sockets would get their numbers: a handler's
    child that writes to its standard output would write to the broker.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened == number:  # else it is somebody's by now, and theirs to keep
                os.set_inheritable(opened, True)
            stream = os.fdopen(opened, mode, encoding="utf-8", errors="backslashreplace")
            for each in (name, f"__{name}__"):  # the second keeps it open when the first is replaced
                setattr(sys, each, stream)


def _report(error: Exception, *, debug: bool) -> int:
    if debug:
        print(hide_logins("".join(traceback.format_exception(error))), file=sys.stderr)
    elif isinstance(error, UserCodeError):
        print(error.report, file=sys.stderr)
    print(f"error: {shown(message_of(error))}", file=sys.stderr)
    return exit_code(error)


def parser() -> Parser:
    """The whole grammar: nouns then verbs, and what is used most at the top."""
    top = Parser(
        prog="jetjobs",
        description="Durable jobs on NATS JetStream.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"jetjobs {__version__}")
    top.add_argument("--debug", action="store_true", help="log everything, and show tracebacks")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="called", required=True)
    for name, (add_options, help_text) in _COMMANDS.items():
        _leaf(commands.add_parser(name, help=help_text, description=_sentence(help_text)), add_options)
    for noun, (help_text, verbs) in _NOUNS.items():
        under = commands.add_parser(noun, help=f"{help_text}: {', '.join(verbs)}")
        below = under.add_subparsers(title="commands", metavar="COMMAND", required=True)
        for name, (add_options, verb_help) in verbs.items():
            _leaf(below.add_parser(name, help=verb_help, description=_sentence(verb_help)), add_options)
    return top


def _leaf(leaf: Parser, add_options: AddOptions) -> None:
    add_options(leaf)
    # Suppressed: a default here would undo a --debug written before the command.
    leaf.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
