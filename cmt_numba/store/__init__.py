"""Stores of vectors with keys of your own, payloads, filters and a recall that can be asked for.

A :class:`MemoryStore` holds vectors in a Contextual Memory Tree, and keys and payloads in SQLite. Keys are strings
or integers of 64 bits. Payloads are JSON. In a folder, a change of the tree and of keys and payloads is one transaction
of the journal's database (:mod:`cmt_numba.journal`), so a crash leaves all of it or nothing.

Filters
-------
``where`` is a dict that says what fields of payloads must be; all its items must hold:

========================================  ==========================================================================
``{"color": "red"}``                      equal to a string, a number or a bool; None: null or missing
``{"year": {"ge": 1990, "lt": 2000}}``    a range, with numbers or with strings: ``gt``, ``ge``, ``lt``, ``le``
``{"color": {"in": ["red", "blue"]}}``    one of several values
``{"color": {"ne": "red"}}``              anything else, also missing
``{"tags": {"contains": "new"}}``         a list with this element
``{"color": {"exists": True}}``           the payload has the field
``{"author.name": "Ann"}``                a field of a field; ``("author", "name")`` names each step
``{"and": [...]}``, ``{"or": [...]}``     all, or any, of several filters
``{"not": {...}}``                        not this filter
========================================  ==========================================================================

Operators may also be written with a dollar sign (``$and``, ``$gt``), and ``ge`` and ``le`` as ``gte`` and ``lte``. A
field with the name of an operator is named by a tuple: ``("and",)``. Values are compared as Python compares those that
JSON gives: 1, 1.0 and True are equal, 1 and "1" are not. A range holds for values of the kind of its bound only.

:meth:`MemoryStore.create_index` lets SQLite find the matching payloads without reading all. A filter that comes again
is prepared once, as long as nothing changes. ``where`` may also be a function of a payload, which is called for every
payload at each query, or a list of keys.

Metrics
-------
Trees search by cosine. For other metrics, keys get one or two features more, so that the cosine gives the same order;
the scores of what was found are computed from the vectors themselves. See :mod:`cmt_numba.store._metrics`.

Files
-----
:meth:`MemoryStore.save` writes the file of a tree (:mod:`cmt_numba.persistence`) of the kind ``MemoryStore``, with one
array more: ``records``, the bytes of an SQLite database with the tables ``records`` (id, key, payload, norm),
``vectors`` (id, and the digits that the key in the tree has lost) and ``facts`` (metric, bound, centre, version, and
what was learned of queries). A folder is that of a :class:`~cmt_numba.DurableTree` whose ``journal.sqlite`` also has
these tables. Databases with other tables, views or triggers are refused.
"""

from ._checks import (
    DuplicateKeyError,
    Key,
    are_none,
    check_answers,
    check_keys,
    check_kind,
    check_one_for_each_row,
    check_payloads,
    check_stored,
)
from ._filters import PreparedFilter
from ._learning import learn_in_blocks
from ._memory_store import MemoryStore
from ._metrics import METRICS, as_rows, check_lengths
from ._results import Item, Items, Result, Results
from ._search import Effort
from ._where import condition_of, field_path

__all__ = ["DuplicateKeyError", "Effort", "Item", "Items", "MemoryStore", "PreparedFilter", "Result", "Results"]
