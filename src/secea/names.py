"""Which names are one entity: the rule of all forms, engines and commands (docs/protocol-keyed.md, K2).

A name is a text, or an integer, which stands for its decimal text. `Params.normalize` makes texts alike before they are
compared. Parties know an entity by its *key*: the text that comes out, or the integer that it spells. Whatever a user
sees has the user's own spelling.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import TypeAlias

from secea.errors import TableError
from secea.params import STEPS
from secea.table import Name, Table, canonical_names, key_of, keys, same_twice

Rule: TypeAlias = str | Sequence[str] | Callable[[str], str]
"""`Params.normalize`: steps, none, or a function."""


def text_of(name: Name, rule: Rule = ()) -> str:
    """The text of a name that was checked."""
    text = str(name)
    if callable(rule):
        return _made(rule, name, text)
    if "nfc" in rule:
        text = unicodedata.normalize("NFC", text)
    if "strip" in rule:
        text = text.strip()
    if "casefold" in rule:
        text = text.casefold()
        if "nfc" in rule:  # folding takes some letters apart
            text = unicodedata.normalize("NFC", text)
    if not text:
        raise TableError(f"the entity name {name!r} is blank: nothing is left of it after normalize={said(rule)}")
    return text


def _made(rule: Callable[[str], str], name: Name, text: str) -> str:
    made = rule(text)
    if not isinstance(made, str) or not made:
        raise TableError(f"normalize makes {made!r} of the entity name {name!r}; the function must give a text")
    try:
        made.encode()
    except UnicodeEncodeError:
        raise TableError(f"normalize makes a lone surrogate of the entity name {name!r}") from None
    return str.__str__(made)


def said(rule: Rule) -> str:
    """A rule in an error."""
    return "a function" if callable(rule) else ",".join(rule)


def keys_of(names: tuple[Name, ...], rule: Rule = ()) -> tuple[Name, ...]:
    """The key of each name, after a check that no two are one entity. The names were checked before."""
    if not rule:
        return keys(names)
    found = tuple(key_of(text_of(name, rule)) for name in names)
    if pair := same_twice(names, found):
        one, other = map(repr, pair)
        raise TableError(
            f"the entities {one} and {other} are one after normalize={said(rule)}: join their rows under one of the"
            " names, or rename one"
        )
    return found


class Spelling:
    """How one client's names become keys, and keys the names as the client spelled them last."""

    def __init__(self, rule: Rule, who: str) -> None:
        """`who`: the client, for errors."""
        self._rule, self._who = rule, who
        self.own: dict[Name, Name] = {}
        """The client's spelling of each entity whose key it is not."""
        self._last: tuple[tuple[Name, ...], tuple[Name, ...]] = (), ()  # tables mostly have the names of the one before

    def keys(self, names: Iterable[object]) -> tuple[Name, ...]:
        """The keys of names, after a check that all are valid, and no two are one entity."""
        try:
            return self._keys(canonical_names(names))
        except TableError as error:
            raise type(error)(f"{self._who}: {error}") from None

    def table(self, table: Table) -> Table:
        """The table with keys as names."""
        try:
            return Table.trusted(self._keys(tuple(table.names)), table.matrix, table.weights)
        except TableError as error:
            raise type(error)(f"{self._who}: {error}") from None

    def _keys(self, names: tuple[Name, ...]) -> tuple[Name, ...]:
        if names != self._last[0]:
            found = keys_of(names, self._rule)
            if self.own or found is not names:
                self._note(names, found)
            self._last = names, found
        return self._last[1]

    def _note(self, names: tuple[Name, ...], found: tuple[Name, ...]) -> None:
        for name, entity in zip(names, found, strict=True):
            if entity == name:
                self.own.pop(entity, None)
            else:
                self.own[entity] = name

    def names(self, keys: Iterable[Name]) -> tuple[Name, ...]:
        """Names as the client spells them."""
        return tuple(self.own.get(key, key) for key in keys) if self.own else tuple(keys)

    def restore(self, own: Mapping[Name, Name]) -> None:
        """Load a saved `own`."""
        self.own, self._last = dict(own), ((), ())


def near(some: Iterable[object], others: Iterable[object], rule: Rule = ()) -> list[tuple[Name, Name]]:
    """Pairs of names that are two entities and nearly look like one: in their Unicode form, case, blanks or zeros.

    Also in blanks within them, or in a .0 at their end, which no step of `normalize` makes alike.

    >>> near(["aspirin", "01"], ["Aspirin ", 1, "aspirin"])
    [('aspirin', 'Aspirin '), ('01', 1)]
    """
    alike: Mapping[str, list[Name]] = defaultdict(list)
    for other in canonical_names(others):
        alike[_loose(other)].append(other)
    pairs = ((name, other) for name in canonical_names(some) for other in alike.get(_loose(name), ()))
    return [(name, other) for name, other in pairs if text_of(name, rule) != text_of(other, rule)]


def spellings(names: Iterable[Name]) -> list[tuple[Name, ...]]:
    """Groups of names that are several entities and nearly look like one, as for `near`, out of all that are given.

    >>> spellings(["aspirin", "Aspirin ", "codeine", "7", "007", 7])
    [('aspirin', 'Aspirin '), ('7', '007')]
    """
    alike: Mapping[str, dict[Name, Name]] = defaultdict(dict)
    for name in names:
        alike[_loose(name)].setdefault(key_of(name), name)
    return [tuple(group.values()) for group in alike.values() if len(group) > 1]


def joining(names: Sequence[Name]) -> tuple[str, ...] | None:
    """The fewest steps of `normalize` that make one entity of these names; None if all of them do not."""
    for count in range(len(STEPS) + 1):
        for steps in combinations(STEPS, count):
            with suppress(TableError):  # nothing is left of a name
                if len({key_of(text_of(name, steps)) for name in names}) == 1:
                    return steps
    return None


def _loose(name: Name) -> str:
    """What names that nearly match have in common. It takes more for one than `normalize` does: that is a hint."""
    text = " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", str(name)).casefold()).split())
    whole = text.partition(".")
    if whole[0].isdecimal() and not whole[2].strip("0"):  # a table with gaps makes 7.0 of 7
        return whole[0].lstrip("0") or "0"
    return text
