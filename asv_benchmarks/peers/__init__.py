"""A comparison of memory trees with their peers: other memory trees, and indexes of nearest neighbours.

Each peer runs in a process of its own, on the same data and the same number of threads; ``compare_peers.py`` in the
folder above is the command. Nothing here is imported by the package ``cmt_numba``.
"""
