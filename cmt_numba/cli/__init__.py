"""The command ``cmt-numba``, which trains, queries and evaluates models on data files."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run the command line. If a dependency is missing, print how to install it.

    An interrupt silently ends the process with status 130, even during start-up. A closed output pipe ends it with
    status 1.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)  # during an import, KeyboardInterrupt could become another exception
    if sys.stdout is None:  # the caller has closed the standard output
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        _run(interruptible)
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    finally:
        _flush()


_INTERRUPTED = 130


def _leave(number: int, frame: Any) -> None:
    os._exit(_INTERRUPTED)


def _flush() -> None:
    """Flush the output. If the output pipe is closed, exit with status 1 instead of an error from Python."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _run(interruptible: bool) -> None:
    try:
        import rich
        import typer
    except ImportError as error:
        print(f"cmt-numba: {error.name} is missing: pip install 'cmt-numba[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    from ._app import app

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="cmt-numba")
