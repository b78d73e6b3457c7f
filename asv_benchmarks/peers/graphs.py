"""Common parameters of navigable small world graphs."""

from __future__ import annotations

from .contract import Options, Peer, Shape

_BUILDS: list[Options] = [{"M": 8, "ef_construction": 50}, {"M": 16, "ef_construction": 200}]
_EFFORTS = (1, 2, 5, 10, 15, 20, 30, 50, 80, 120, 200, 400)
_FEW_EFFORTS = (10, 50)


class Graph(Peer):
    """A hierarchical navigable small world graph of any library."""

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        return _BUILDS

    def settings(self, build: Options, quick: bool) -> list[Options]:
        return [{"ef": ef} for ef in (_FEW_EFFORTS if quick else _EFFORTS)]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return [(build, {"ef": 50}) for build in _BUILDS]
