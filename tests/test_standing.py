"""What stood there before stands there again: else one mutant changes what all later tests look at."""

from __future__ import annotations

import os

from secea.audit.standing import attributes_stand_in


class Above:
    def inherited(self) -> str:
        return "above"


class Below(Above):
    @classmethod
    def made(cls) -> str:
        return cls.__name__

    @staticmethod
    def alone() -> str:
        return "alone"


class Lower(Below):
    pass


def test_class_methods_static_ones_inherited_ones_and_functions_of_modules_are_what_they_were() -> None:
    before = dict(vars(Below)), os.fsync
    places = [(Below, "made"), (Below, "alone"), (Below, "inherited"), (os, "fsync"), (Below, "made")]
    with attributes_stand_in(*((owner, name, lambda *_: "other") for owner, name in places)):
        assert Below().made() == Below().inherited() == os.fsync(0) == "other"  # type: ignore[func-returns-value]
    assert (dict(vars(Below)), os.fsync) == before
    assert (Lower.made(), Lower.alone(), Lower().inherited()) == ("Lower", "alone", "above")


def test_defaults_of_a_function_are_what_they_were() -> None:
    def add(a: int, b: int = 1) -> int:
        return a + b

    with attributes_stand_in((add, "__defaults__", (5,))):
        assert add(1) == 6
    assert add(1) == 2
