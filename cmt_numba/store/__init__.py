"""Stores of vectors with keys of your own, payloads, filters and a target recall.

A :class:`MemoryStore` holds vectors in a Contextual Memory Tree, and keys and payloads in SQLite. Keys are strings
or 64-bit integers. Payloads are JSON. In a folder, a change of the tree, keys and payloads is one transaction of the
journal's database (:mod:`cmt_numba.journal`), so a crash leaves all of it or nothing.

Filters
-------
``where`` is a dict of conditions on the fields of payloads; all must hold:

========================================  ==========================================================================
``{"color": "red"}``                      equal to a string, a number or a bool; None: null or missing
``{"year": {"ge": 1990, "lt": 2000}}``    a range, with numbers or with strings: ``gt``, ``ge``, ``lt``, ``le``
``{"color": {"in": ["red", "blue"]}}``    one of several values
``{"color": {"ne": "red"}}``              anything else, or missing
``{"tags": {"contains": "new"}}``         a list with this element
``{"color": {"exists": True}}``           the payload has the field
``{"author.name": "Ann"}``                a field of a field; ``("author", "name")`` names each step
``{"and": [...]}``, ``{"or": [...]}``     all, or any, of several filters
``{"not": {...}}``                        not this filter
========================================  ==========================================================================

Operators may also be written with a dollar sign (``$and``, ``$gt``), and ``ge`` and ``le`` as ``gte`` and ``lte``.
Write a field that has the name of an operator as a tuple: ``("and",)``. Values are compared like the values that Python
reads from JSON: 1, 1.0 and True are equal, 1 and "1" are not. A range matches only values of the same type as its
bound: numbers or strings.

:meth:`MemoryStore.create_index` lets SQLite find the matching payloads without reading all of them. A filter is
evaluated once until the store changes. ``where`` may also be a list of keys, a filter from :meth:`MemoryStore.filter`,
or a function of a payload, which is called for every payload at each query.

Metrics
-------
Trees search by cosine. For other metrics, keys get one or two further features, so that the cosine gives the same
order. Scores are computed from the vectors themselves. See :mod:`cmt_numba.store._metrics`.

Files
-----
:meth:`MemoryStore.save` writes the file of a tree (:mod:`cmt_numba.persistence`) of the kind ``MemoryStore``, with one
more array: ``records``, the bytes of an SQLite database with the tables ``records`` (id, key, payload, norm),
``vectors`` (id, and the digits that the key in the tree has lost) and ``facts`` (metric, bound, centre, version, the
learned query map and the measured recall). A folder is that of a :class:`~cmt_numba.DurableTree` whose
``journal.sqlite`` also has these tables. Databases with other tables, views or triggers are refused.
"""

from ._checks import (
    DuplicateKeyError,
    Key,
    are_none,
    check_answers,
    check_keys,
    check_kind,
    check_one_for_each_row,
    check_one_of,
    check_payloads,
    check_stored,
)
from ._filters import PreparedFilter, check_filter
from ._learning import learn_in_blocks
from ._memory_store import MemoryStore
from ._metrics import METRICS, as_rows, check_lengths
from ._results import Item, Items, Result, Results
from ._search import Effort
from ._where import condition_of, field_path

__all__ = ["DuplicateKeyError", "Effort", "Item", "Items", "MemoryStore", "PreparedFilter", "Result", "Results"]
