"""The command ``cmt-numba``, which trains, queries and evaluates models on data files."""

import errno
import io
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
        sys.stdout = _ClosedOutput()
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
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(1) from None
    except OSError as error:
        print(f"cmt-numba: standard output: {error.strerror}", file=sys.stderr)
        _discard_output()
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        print(f"cmt-numba: {error.name} is missing: pip install 'cmt-numba[cli]'", file=sys.stderr)
        raise SystemExit(2) from None


class _ClosedOutput(io.TextIOBase):
    """The standard output of a process that was started without one."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed", "standard output")


def _discard_output() -> None:
    """Discard the output that is still buffered, so that Python does not try to write it at exit."""
    if not isinstance(sys.stdout, _ClosedOutput):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"cmt-numba: warning: {' '.join(str(message).split())}", file=sys.stderr)
