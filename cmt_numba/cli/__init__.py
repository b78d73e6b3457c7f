"""The command ``cmt-numba``: learn from data files, ask, and measure how good the answers are."""

import sys


def main() -> None:
    """Run the command line; without what it needs, say what to install."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        print(f"cmt-numba: {error.name} is missing: pip install 'cmt-numba[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    from ._app import app

    app(prog_name="cmt-numba")
