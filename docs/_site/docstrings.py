"""Turns the roles and tables of reStructuredText in docstrings into Markdown, for the API reference."""

import html
import re
from typing import Any

from griffe import Extension, GriffeError, Object

_ROLE = re.compile(r":(?:class|data|func|meth|mod):`(~?)([^`]+)`")
_TABLE = re.compile(r"^=+ +=+\n.*?\n=+(?: +=+)+$", re.MULTILINE | re.DOTALL)


class Docstrings(Extension):
    """Rewrites docstrings when the whole package is known, so that names can be looked up."""

    def on_package(self, *, pkg: Object, **kwargs: Any) -> None:
        """Rewrite all docstrings of a package."""
        _rewrite(pkg)


def _rewrite(scope: Object) -> None:
    if scope.docstring is not None:
        text = _TABLE.sub(lambda table: _markdown_list(table[0]), scope.docstring.value)
        # Types such as "array-like, shape (n)" are words. So joined they are not taken for Python and reformatted.
        text = text.replace("-like", "\N{NON-BREAKING HYPHEN}like").replace("shape (", "shape\N{NO-BREAK SPACE}(")
        scope.docstring.value = _ROLE.sub(lambda role: _reference(scope, role[2], short=bool(role[1])), text)
    for member in scope.members.values():
        if not member.is_alias:
            _rewrite(member)


def _reference(scope: Object, name: str, *, short: bool) -> str:
    """Return a name in code, with a link where it is found and the site has it."""
    code = f"<code>{html.escape(name.rpartition('.')[2] if short else name)}</code>"
    path = _find(scope, name)
    return f'<autoref identifier="{path}" optional>{code}</autoref>' if path else code


def _find(scope: Object, name: str) -> str | None:
    """Return the full path of a name as it is seen from a scope, as Python would look it up."""
    first, *rest = name.split(".")
    while scope is not None:
        found = scope if scope.name == first else _member(scope, first)
        for part in rest:
            found = found and _member(found, part)
        if found:
            return found.canonical_path
        scope = scope.parent
    return None


def _member(scope: Object, name: str) -> Object | None:
    try:
        return scope.all_members.get(name)
    except GriffeError:  # it, or a class above it, is of another package
        return None


def _markdown_list(table: str) -> str:
    """Return a table of two columns without headings as a list of Markdown."""
    border, *lines = table.splitlines()[:-1]
    second = border.index(" =")
    items: list[str] = []
    for line in lines:
        term, text = line[:second].strip(), line[second:].strip()
        if term:
            items.append(f"- {term}: {text}")
        else:  # goes on with the line above
            items[-1] += f" {text}"
    return "\n".join(items)
