"""Stores of vectors and texts with user-defined keys, payloads, filters and a target recall.

A :class:`MemoryStore` keeps vectors and the words of texts in indexes, and keys, payloads and texts in SQLite. Keys are
strings or 64-bit integers. Payloads are JSON. In a folder, each change is one transaction of the journal's database
(:mod:`cmt_numba.journal`), so after a crash either the whole change is there or none of it.

Filters
-------
``where`` is a dict of conditions on payload fields. A payload matches if all conditions hold:

========================================  ==========================================================================
``{"color": "red"}``                      equal to a string, a number or a bool; None: null or missing
``{"year": {"ge": 1990, "lt": 2000}}``    a range, with numbers or with strings: ``gt``, ``ge``, ``lt``, ``le``
``{"color": {"in": ["red", "blue"]}}``    one of several values
``{"color": {"ne": "red"}}``              anything else, or missing
``{"color": {"not in": ["red"]}}``        none of several values, or missing
``{"color": {"startswith": "re"}}``       a string that begins with another one
``{"tags": ["new", "old"]}``              equal to a list
``{"tags": {"contains": "new"}}``         a list with this element, or a string with this part
``{"color": {"exists": True}}``           the payload has the field
``{"author.name": "Ann"}``                a nested field; ``("author", "name")`` is the same
``{"and": [...]}``, ``{"or": [...]}``     all, or any, of several filters
``{"not": {...}}``                        not this filter
========================================  ==========================================================================

Operators may also start with a dollar sign (``$and``, ``$gt``), and ``gte``, ``lte`` and ``nin`` mean ``ge``, ``le``
and ``not in``. Write a field whose name is an operator as a tuple: ``("and",)``. The numbers 1 and 1.0 are equal, but
1, True and "1" are not. A range matches only values of the same type as its bounds, numbers or strings.

:meth:`MemoryStore.create_index` lets SQLite find the matching payloads without reading all of them. A filter is
evaluated again only after the store has changed. ``where`` may also be a list of keys, a filter from
:meth:`MemoryStore.filter`, or a function of a payload, which each query calls for every payload.

Files
-----
:meth:`MemoryStore.save` writes a file (:mod:`cmt_numba.persistence`) of the kind ``MemoryStore``: the options, the
arrays of the indexes, and ``records``, the bytes of an SQLite database with the tables ``records`` (id, key, payload,
text, expires, changed, checksum) and ``facts`` (name, value). In a folder, ``journal.sqlite`` has these tables, and the
snapshot has everything else. Databases with other tables, views or triggers are refused.
"""

from .._feedback import ExplainedResult, LearnedSummary
from .._postings import WordStatistics
from ._checks import (
    METRICS,
    DuplicateKeyError,
    Key,
    are_none,
    as_times,
    check_answers,
    check_expiries,
    check_keys,
    check_metric,
    check_one_of,
    check_payloads,
    check_stored,
    check_values,
)
from ._contents import check_fields, check_new_texts
from ._encoding import encode_stored, read_queries, refuse_texts
from ._filters import PreparedFilter, check_filter
from ._memory_store import MemoryStore
from ._results import Item, Items, Result, Results
from ._spelling import NearWords
from ._where import check_listing, condition_of, field_path

__all__ = ["DuplicateKeyError", "MemoryStore"]
