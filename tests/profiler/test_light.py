"""Our dataclasses behave as the standard ones do, at least where ours use them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from stallscope.profiler import light

MAKERS = {"ours": light.dataclass, "standard": dataclasses.dataclass}


@pytest.fixture(params=list(MAKERS))
def made(request: pytest.FixtureRequest) -> tuple[type[Any], type[Any]]:
    """A frozen class and one that may change, made in each of the two ways."""
    make: Callable[..., Any] = MAKERS[request.param]

    @make(frozen=True)
    class Point:
        """A point."""

        x: int
        y: int = dataclasses.field(default=2, metadata={"help": "up"})
        tags: list[str] = dataclasses.field(default_factory=list)
        run: Any = dataclasses.field(default=None, repr=False, compare=False)

        @cached_property
        def double(self) -> int:
            return 2 * self.x

    @make
    class Place:
        name: str
        size: int = 0

    return Point, Place


def test_values_and_defaults(made: tuple[type[Any], type[Any]]) -> None:
    Point, _ = made

    a, b = Point(1), Point(1, y=3, tags=["t"])

    assert (a.x, a.y, a.tags, a.run) == (1, 2, [], None)
    assert (b.x, b.y, b.tags, b.double) == (1, 3, ["t"], 2)
    assert Point(1).tags is not a.tags


@pytest.mark.parametrize(
    "values, named",
    [((), {}), ((1, 2, [], None, 5), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((), {"y": 2, "z": 1})],
)
def test_a_missing_or_unknown_value_is_refused(
    made: tuple[type[Any], type[Any]], values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        made[0](*values, **named)


def test_equal_by_what_is_compared(made: tuple[type[Any], type[Any]]) -> None:
    Point, Place = made

    assert Point(1, run="a") == Point(1, run="b") != Point(2)
    assert Place("a") == Place("a") != Place("b")
    assert Place("a") != ("a", 0)
    assert hash(Point(1, tags=())) == hash(Point(1, 2, ()))
    with pytest.raises(TypeError):
        hash(Place("a"))


def test_only_what_is_not_frozen_changes(made: tuple[type[Any], type[Any]]) -> None:
    Point, Place = made
    point, place = Point(1), Place("a")

    place.size = 4

    assert place.size == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x


def test_the_tools_of_the_standard_library_work(made: tuple[type[Any], type[Any]]) -> None:
    Point, Place = made
    point = Point(1, tags=["t"])

    assert dataclasses.replace(point, y=5) == Point(1, 5, ["t"])
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "tags": ["t"], "run": None}
    assert dataclasses.fields(Point)[1].metadata["help"] == "up"
    assert copy.deepcopy(point) == point
    assert repr(point).endswith("Point(x=1, y=2, tags=['t'])")
    assert repr(Place("a")).endswith("Place(name='a', size=0)")
