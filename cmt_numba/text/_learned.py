"""What estimators that learn from texts have in common: words of texts, checks of parameters, files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from .._validation import Constraint, check_parameters
from ..persistence._container import Contents
from ..persistence._saved import Saved
from ..persistence._trees import take
from ._counting import check_texts

_WORD = re.compile(r"\w+")


class SavableText(Saved, BaseEstimator):
    """An estimator of texts that can be saved."""

    _unsaved: ClassVar[tuple[str, ...]] = ("tokenizer", "random_state")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what has been learned and the parameters to a file, but no functions, seeds or other estimators.

        Parameters
        ----------
        path : path-like
            The file; replaced at once if it is there already.

        Raises
        ------
        OSError
            If the file cannot be written.
        sklearn.exceptions.NotFittedError
            If nothing has been learned.
        """
        super().save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Return what :meth:`save` has written.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Whether to map the vectors, which are then read when they are needed.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged or holds something else.
        OSError
            If the file cannot be read.
        """
        return cls._loaded(path, mmap=mmap)

    def _saved_parameters(self) -> dict[str, Any]:
        return {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params(deep=False).items()
            if name not in self._unsaved
        }

    @classmethod
    def _with_parameters_of(cls, contents: Contents) -> Self:
        made = cls(**take(contents.fields, "parameters", dict))
        made._check_parameters()
        return made

    def _check_parameters(self) -> Any:
        raise NotImplementedError


class TextEstimator(SavableText):
    """An estimator that learns from texts, made of words."""

    _constraints: ClassVar[dict[str, Constraint]]

    tokenizer: Callable[[str], Iterable[str]] | None
    lowercase: bool
    min_n: int
    max_n: int

    def _check_parameters(self) -> None:
        check_parameters(self, self._constraints)
        if self.max_n and self.max_n < self.min_n:
            raise ValueError(f"max_n must be 0 or at least min_n={self.min_n}, not {self.max_n}")
        if self.tokenizer is not None and not callable(self.tokenizer):
            raise TypeError(f"tokenizer must be a function of a text, not {self.tokenizer!r}")

    def _words_of(self, text: str) -> list[str]:
        text = text.lower() if self.lowercase else text
        return _WORD.findall(text) if self.tokenizer is None else list(self.tokenizer(text))

    def _words_of_all(self, texts: Any) -> list[list[str]]:
        return [self._words_of(text) for text in check_texts("texts", texts, or_none=True)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags
