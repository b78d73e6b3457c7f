"""``python -m cmt_numba`` is the command ``cmt-numba``."""

from .cli import main

if __name__ == "__main__":
    main()
