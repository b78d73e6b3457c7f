"""The peers by name. Modules are imported when their peer is wanted, and their packages when it is built."""

from __future__ import annotations

import importlib
import importlib.util

from .contract import Peer

PEERS = {
    "trees": "ours:Trees",
    "CMTClassifier": "ours:Classifier",
    "paper tree": "ours:PaperTree",
    "hnswlib": "hnswlib_peer:Hnswlib",
    "faiss flat": "faiss_peers:FaissFlat",
    "faiss IVF": "faiss_peers:FaissIVF",
    "faiss HNSW": "faiss_peers:FaissHNSW",
    "numpy product": "products:DenseProduct",
    "scipy product": "products:SparseProduct",
    "inverted index": "inverted_index:InvertedIndex",
    "nmslib inverted": "nmslib_peers:NmslibInverted",
    "nmslib HNSW": "nmslib_peers:NmslibHNSW",
    "pynndescent": "pynndescent_peer:PyNNDescent",
    "sklearn brute": "sklearn_peers:BruteForce",
    "sklearn KDTree": "sklearn_peers:KDTree",
    "VW CMT": "vowpal:VowpalCMT",
    "VW EMT": "vowpal:VowpalEMT",
}


def find_peer(name: str) -> type[Peer]:
    """Return the class of a peer.

    Raises
    ------
    KeyError
        If there is no such peer.
    """
    module, a_class = PEERS[name].split(":")
    found: type[Peer] = getattr(importlib.import_module(f"{__package__}.{module}"), a_class)
    return found


def is_installed(peer: type[Peer]) -> bool:
    """Return whether the package that a peer needs is there."""
    return importlib.util.find_spec(peer.package) is not None
