import sys

import pytest
import torch

from fedrun.data.datasets.base import Spec
from fedrun.models.custom_model import CustomModel
from fedrun.system.errors import InputError

SPEC = Spec((2, 3), 4)


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "users_networks.py").write_text(
        "import torch\n"
        "def build(spec):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 5), torch.nn.Linear(5, spec.classes))\n"
        "def nothing(spec):\n"
        "    return None\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("users_networks", None)


@pytest.mark.usefixtures("module")
def test_a_users_function_builds_the_network():
    network = CustomModel(target="users_networks.build", head=None, norm="batch").build(SPEC)
    assert network(torch.rand(7, 2, 3)).shape == (7, 4)
    assert network.get_submodule("head").weight.shape == (4, 5)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("users_network.build", r"^model.target=users_network.build: No module named 'users_network'; allowed: "),
        ("users_networks.built", r"^model.target=users_networks.built: module .* has no attribute 'built'"),
        ("build", "^model.target=build: Empty module name"),
        ("users_networks.number", "^model.target=users_networks.number: not a function"),
        ("users_networks.nothing", "^model.target=users_networks.nothing: returns a NoneType"),
    ],
)
def test_what_is_refused(target, message):
    with pytest.raises(InputError, match=message):
        CustomModel(target=target, head=None, norm="batch").build(SPEC)
