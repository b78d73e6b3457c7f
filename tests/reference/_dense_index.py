"""Plain NumPy for what a dense index stores and finds, from its vectors, centers and random signs alone."""

import numpy as np


def hadamard(n: int) -> np.ndarray:
    """Return the orthogonal Hadamard matrix of a power of two."""
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(n)


def rotation(signs: np.ndarray) -> np.ndarray:
    """Return the matrix that rotates padded vectors, given the random signs of its rounds."""
    width, size = signs.shape[1], 64
    while 2 * size <= width:
        size *= 2
    total = np.eye(width)
    for turn in range(2 if size == width else 4):
        step, begin = np.eye(width), (width - size) * (turn % 2)
        step[begin : begin + size, begin : begin + size] = hadamard(size)
        total = step @ (signs[turn].astype(np.float64)[:, None] * total)
    return total


def rotated(X: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Return rotated vectors."""
    padded = np.zeros((len(X), signs.shape[1]))
    padded[:, : X.shape[1]] = X
    product: np.ndarray = padded @ rotation(signs).T
    return product


def one_bit_code(y: np.ndarray, center: np.ndarray, lift: float) -> tuple[np.ndarray, float, float]:
    """Return the signs of a rotated member of a list, the factor of their sum, and the number added to it."""
    rest = y - center
    signs = np.where(rest > 0, 1.0, -1.0)
    factor = rest @ rest / np.abs(rest).sum() if rest.any() else 0.0
    return signs > 0, factor, lift - factor * (signs @ center) - 0.5 * (rest @ rest)


def within_gap(q: np.ndarray, centers: np.ndarray, added: np.ndarray, gap: float) -> np.ndarray:
    """Return the lists whose centers are at most a gap farther from a rotated query than the nearest one."""
    near = added - 0.5 * ((centers - q) ** 2).sum(axis=1)
    return np.flatnonzero(near >= near.max() - gap)
