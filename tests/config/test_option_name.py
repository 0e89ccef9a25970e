"""Config objects by the names of their options."""

import pytest

from fedrun.config.build import option
from fedrun.config.option_name import chosen, option_of
from fedrun.config.options import content, option_files
from fedrun.experiment.experiment import Experiment
from fedrun.strategies.client import ClientStrategy

OF_ONE_CLASS = ["strategy/client", "privacy", "compression", "secure_sum", "appeal", "partition", "attack"]


class Unlisted(ClientStrategy):
    """A strategy that no option has."""


@pytest.mark.parametrize("group", OF_ONE_CLASS)
def test_an_option_is_named_if_it_alone_has_its_class(group: str) -> None:
    classes = {name: content(group, name, path)["_target_"] for name, path in option_files(group, None).items()}
    for name, target in classes.items():
        alone = list(classes.values()).count(target) == 1
        assert option_of(group, target) == (name if alone else target.rpartition(".")[2])


def test_names() -> None:
    assert chosen("strategy/client", option("strategy/client", "fedprox", mu=0.1)) == "strategy/client=fedprox"
    assert chosen("strategy/client", Unlisted()) == "strategy/client=Unlisted"
    assert option_of("dataset", "fedrun.data.datasets.synthetic.Synthetic") == "Synthetic"  # two options have it
    assert option_of("strategy/client", "fedrun.earlier.Ditto") == "ditto"  # a module that has moved
    assert option_of("strategy/client", "mine.Ditto") == "Ditto"
    assert option_of("no/such/group", "module.Class") == "Class"
    assert option_of("privacy", f"{Experiment.__module__}.Experiment") == "Experiment"
