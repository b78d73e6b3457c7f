"""Run the command ``cmt-numba`` with ``python -m cmt_numba``."""

from .cli import main

if __name__ == "__main__":
    main()
