"""Pretrained encoders that turn texts into vectors."""

from typing import Any

import numpy as np
import scipy.sparse

from .._encoder import encode_texts, load_encoder

_N_COMPARED, _TOLERANCE = 8, 0.05  # stored texts that show whether an encoder is the same, and maximum distance


class Encoder:
    """A pretrained encoder, as :class:`TextClassifier` takes it, with a cache of recent vectors."""

    def __init__(self, encoder: Any, *, most_remembered: int = 10_000) -> None:
        self.encoder, self._most_remembered = encoder, most_remembered
        self.n_features: int | None = None
        self._known: dict[str, np.ndarray] = {}
        self._loaded: Any = None

    def adopt(self, stored: Any) -> bool:
        """Cache the vectors of :class:`StoredTexts` if this encoder returns them for a few texts; return whether."""
        texts, vectors = stored.texts, stored.encoded
        few = np.linspace(0, len(texts) - 1, min(len(texts), _N_COMPARED)).astype(int)
        found, expected = self.encode([texts[i] for i in few]), vectors[few]
        if found.shape != expected.shape or np.any(np.linalg.norm(found - expected, axis=1) > _TOLERANCE):
            return False
        self.remember(texts, vectors[: len(texts)])
        return True

    def remember(self, texts: list[str], vectors: np.ndarray) -> None:
        """Cache the vectors of texts."""
        if len(self._known) + len(texts) > self._most_remembered:
            self._known = {}
        self._known.update(zip(texts, vectors, strict=True))

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return a vector of length 1 for each text: float32."""
        known = self._known
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        found = {text: known[text] for text in texts if text in known}
        if missing:
            if self._loaded is None:
                self._loaded = load_encoder(self.encoder)
            vectors = encode_texts(self._loaded, "encode_query", missing, self.n_features)
            if scipy.sparse.issparse(vectors):
                vectors = vectors.toarray()
            self.n_features = vectors.shape[1]
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = (vectors / np.where(lengths > 0.0, lengths, 1.0)).astype(np.float32)
            self.remember(missing, vectors)
            found.update(zip(missing, vectors, strict=True))
        return np.stack([found[text] for text in texts])
