"""What the constructors of config classes reject, in one line."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import pytest
from annotated_types import Ge
from omegaconf import OmegaConf

from fedrun.config.build import construct, option
from fedrun.config.composed import compose
from fedrun.config.config_class import ArgumentError, config_class
from fedrun.config.identity import Neutral
from fedrun.experiment.experiment import build_experiment
from fedrun.system.errors import InputError


@config_class
class Wheel:
    radius: Annotated[float, Ge(0)]


@config_class
class Car:
    wheels: Annotated[int, Ge(3)]
    wheel: Wheel
    spare: Annotated[int | None, Ge(1)]


CAR = {"wheels": 4, "wheel": Wheel(radius=0.3), "spare": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wheels": 2}, "Car.wheels=2; allowed: an integer, at least 3"),
        ({"wheels": "four"}, "Car.wheels='four'; allowed: an integer, at least 3"),
        ({"wheels": "4"}, "Car.wheels='4'; allowed: an integer, at least 3"),
        ({"spare": 0}, "Car.spare=0; allowed: an integer, at least 1; or null"),
        ({"wheel": {"radius": 1}}, "Car.wheel: dict; allowed: an object of Wheel"),
        ({"doors": 5}, "Car: unknown argument doors; allowed by keyword: wheels, wheel, spare"),
    ],
)
def test_constructors_and_copies(changes: dict[str, object], message: str) -> None:
    for made in (lambda: Car(**CAR | changes), lambda: replace(Car(**CAR), **changes)):
        with pytest.raises(InputError) as refusal:
            made()
        assert str(refusal.value) == message


def test_missing_and_positional_arguments() -> None:
    wheel: Any = Wheel
    with pytest.raises(ArgumentError, match=r"^Wheel\.radius: is missing; allowed: a finite number, at least 0$"):
        wheel()
    for keywords in ({"radius": 2.0}, {}):
        with pytest.raises(ArgumentError, match=r"^Wheel: 1\.0 without a name; allowed by keyword: radius$"):
            wheel(1.0, **keywords)


@config_class
class Garage:
    """It builds another config object, wrongly."""

    places: int

    def __post_init__(self) -> None:
        Wheel(radius=-self.places)


def test_an_error_of_another_class_is_not_taken_for_one_of_the_key() -> None:
    with pytest.raises(InputError, match=r"^Wheel\.radius=-2; allowed: a finite number, at least 0$"):
        construct(Garage, {"places": 2}, "garage")
    with pytest.raises(InputError, match=r"^garage\.places=two: allowed: an integer$"):
        construct(Garage, {"places": "two"}, "garage")


@config_class
class Van:
    """It refuses its seats with an exception of Python's."""

    seats: int

    def __post_init__(self) -> None:
        if self.seats > 3:
            raise ValueError("a van has at most three seats")
        if not self.seats:
            raise AssertionError("a van has a seat")


@pytest.mark.parametrize(("seats", "reason"), [(4, "a van has at most three seats"), (0, "a van has a seat")])
def test_an_error_of_pythons_in_a_class_of_ones_own(seats: int, reason: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        Van(seats=seats)
    assert str(refusal.value) == f"Van: {reason}"
    for path, where in (("car.van", "car.van"), ("", "Van")):
        with pytest.raises(InputError) as refused:
            construct(Van, {"seats": seats}, path)
        assert str(refused.value) == f"{where}: {reason}"


def test_objects_are_copied_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(Car(**CAR))) == Car(**CAR)


def test_sequences_are_lists() -> None:
    for hidden in ([8, 4], (8, 4), OmegaConf.create([8, 4])):
        assert option("model", "mlp", hidden=hidden).hidden == (8, 4)


@config_class
class Rates:
    """A mapping of a user's own class."""

    by_layer: dict[str, float] | None
    more: Annotated[Mapping[str, Annotated[float, Ge(0)]], Neutral({})]


def test_keys_that_take_a_mapping():
    rates = construct(Rates, {"by_layer": {"head": 0.5}, "more": {"encoder": 2}}, "rates")
    assert (rates.by_layer, rates.more) == ({"head": 0.5}, {"encoder": 2})
    assert construct(Rates, {"by_layer": None, "more": {}}, "rates").by_layer is None


@pytest.mark.parametrize(
    ("more", "shown"),
    [({"head.weight": -2.0}, "{head.weight:-2.0}"), ({"bias": "0.5"}, "{bias:'0.5'}"), ({"bias": None}, "{bias:null}")],
)
def test_a_wrong_entry_of_a_mapping_is_named_with_its_bounds(more: dict[str, object], shown: str) -> None:
    allowed = "allowed: a mapping from names to values, each a finite number, at least 0"
    arguments = {"by_layer": None, "more": {"encoder.*": 0.5, **more}}
    with pytest.raises(InputError) as refused:
        construct(Rates, arguments, "rates")
    assert str(refused.value) == f"rates.more={shown}: {allowed}"
    with pytest.raises(ArgumentError) as refusal:
        Rates(**arguments)
    assert str(refusal.value) == f"Rates.more={shown}; {allowed}"


def test_an_option_is_chosen_in_a_files_defaults():
    with pytest.raises(
        InputError, match=r"^tracking=none: allowed: .*; in a file: defaults: \[override /tracking: none\]$"
    ):
        build_experiment({**compose([]).config, "tracking": "none"})
