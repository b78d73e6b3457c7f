"""The command ``cmt-numba``, which trains, queries and evaluates models on data files."""

import os
import signal
import sys
import warnings
from typing import Any

_INTERRUPTED = 130


def main() -> None:
    """Run the command line. If a dependency is missing, print how to install it.

    An interrupt silently ends the process with status 130, even during start-up. A closed output pipe ends it with
    status 1. If the output cannot be written for another reason, print the reason and end with status 2.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:  # during an import, KeyboardInterrupt could become another exception
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    if sys.stdout is None:
        _fail("standard output: it is closed")
    warnings.showwarning = _show_warning
    try:
        try:
            from ._app import app

            if interruptible:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            app()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except OSError as error:
        # Discard the output that is still buffered, so that Python does not try to write it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(1) from None
        _fail(f"standard output: {error.strerror}")
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing: pip install 'cmt-numba[cli]'")


def _fail(reason: str) -> None:
    print(f"cmt-numba: {reason}", file=sys.stderr)
    raise SystemExit(2)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"cmt-numba: warning: {' '.join(str(message).split())}", file=sys.stderr)
