"""The command ``cmt-numba``: train, query and evaluate models on data files."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run the command line. If a dependency is missing, print how to install it.

    An interrupt ends the process silently with status 130, also during start-up. A closed output pipe ends it with
    status 1.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)  # an exception inside an import could be turned into another
    if sys.stdout is None:  # closed
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
    """Flush the output, because Python would report a closed pipe at exit."""
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
