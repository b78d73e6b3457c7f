"""Which labels are so common that they are candidates for every row."""

import numpy as np

_MOST_COMMON = 1024  # labels that are candidates for every row: all, if there are no more
_SHARE_OF_ROWS = 1 / 256  # that have a label which is common, where there are more


def most_common(n_of_label: np.ndarray, n_rows: float, former: np.ndarray) -> np.ndarray:
    """Return the common labels, the most frequent first.

    Parameters
    ----------
    n_of_label : ndarray of int64 or float64, shape (n_labels,)
        How many rows have each label, or the total weight of these.
    n_rows : float
        How many rows there have been, or their total weight.
    former : ndarray of int64
        The labels that were common before. They stay so for longer, so that the index is not rebuilt again and again.

    Returns
    -------
    ndarray of int64
        The labels.
    """
    if n_of_label.size <= _MOST_COMMON:
        return np.argsort(-n_of_label, kind="stable")
    frequent = np.flatnonzero(n_of_label >= _SHARE_OF_ROWS / 2 * n_rows)  # few of very many: only these are sorted
    common = frequent[np.argsort(-n_of_label[frequent], kind="stable")[:_MOST_COMMON]]
    share = np.where(np.isin(common, former), _SHARE_OF_ROWS / 2, _SHARE_OF_ROWS)
    return common[n_of_label[common] >= share * n_rows]
