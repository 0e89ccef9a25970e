import sys

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.adapted import replace_batch_norm
from fedrun.models.base import new_network
from fedrun.models.flat_network import layout_of
from fedrun.models.head_place import joined
from fedrun.models.logistic import Logistic
from fedrun.system.errors import InputError

SPEC = Spec((2, 3), 4)


def custom(target, **changes):
    return option("model", "custom", target=target, **changes)


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "users_networks.py").write_text(
        "import copy, functools, torch\n"
        "def build(spec):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 5), torch.nn.Linear(5, spec.classes))\n"
        "def nothing(spec):\n"
        "    return None\n"
        "number = 3\n"
        "network = torch.nn.Flatten()\n"
        "def fails(spec):\n"
        "    return torch.nn.Linear(spec.width, 4)\n"
        "class Sized(torch.nn.Sequential):\n"
        "    def __init__(self, spec):\n"
        "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(6, spec.classes))\n"
        "def normed(spec):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 4))\n"
        "class Doubled(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(6, 4)\n"
        "    def forward(self, x):\n"
        "        return 2 * self.layer(x.flatten(1))\n"
        "class Pair(Doubled):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x), x\n"
        "def two(spec, width):\n"
        "    return build(spec)\n"
        "def pair(spec):\n"
        "    return Pair()\n"
        "class Centred(Doubled):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.register_buffer('mean', torch.zeros(6))\n"
        "    def forward(self, x):\n"
        "        self.mean = 0.9 * self.mean + 0.1 * x.flatten(1).mean(0)\n"
        "        return super().forward(x)\n"
        "def centred(spec):\n"
        "    return Centred()\n"
        "def scripted(spec):\n"
        "    return torch.jit.script(build(spec))\n"
        "def double(spec):\n"
        "    return build(spec).double()\n"
        "def doubled(spec):\n"
        "    return Doubled()\n"
        "cached, prototype = functools.cache(build), functools.cache(build)\n"
        "def copied(spec):\n"
        "    return copy.deepcopy(prototype(spec))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "misspelt.py").write_text("def build(:\n")
    yield
    sys.modules.pop("users_networks", None)


@pytest.mark.usefixtures("module")
def test_a_users_function_builds_the_network():
    network = custom("users_networks.build").build(SPEC)
    whole, batch = sys.modules["users_networks"].build(SPEC), torch.rand(7, 2, 3)
    whole.load_state_dict({f"{3 - k}.{name}": tensor for k, part in enumerate([network.head, network.encoder[1]], 1)
                           for name, tensor in part.state_dict().items()})  # fmt: skip
    assert torch.equal(network(batch), whole(batch))
    assert network.get_submodule("encoder")(batch).shape == (7, 5)
    assert network.get_submodule("head").weight.shape == (4, 5)


@pytest.mark.usefixtures("module")
def test_two_networks_do_not_share_weights():
    """Otherwise training one would change the other, and the initial model with it."""
    new_network(custom("users_networks.cached"), SPEC)
    message = r"^model.target=users_networks.cached: returns the weights 1.weight of an earlier call, as from a cache; "
    with pytest.raises(InputError, match=message):
        new_network(custom("users_networks.cached"), SPEC)
    first, second = (new_network(custom("users_networks.copied"), SPEC) for _ in range(2))
    assert first.get_submodule("head").weight.data_ptr() != second.get_submodule("head").weight.data_ptr()


def test_networks_of_a_users_option_do_not_share_weights():
    network = Logistic(zero_init=False).build(SPEC)

    @config_class
    class Cached(Logistic):
        def build(self, spec):
            return network

    new_network(Cached(zero_init=False), SPEC)
    with pytest.raises(InputError, match=r"^model=Cached: returns the weights head.weight of an earlier call"):
        new_network(Cached(zero_init=False), SPEC)


def test_a_users_option_that_builds_nothing_is_named():
    @config_class
    class Forgotten(Logistic):
        def build(self, spec):
            super().build(spec)

    with pytest.raises(InputError, match=r"^model=Forgotten: builds a NoneType; allowed: a Sequential of encoder and"):
        new_network(Forgotten(zero_init=False), SPEC)


@pytest.mark.usefixtures("module")
def test_further_arguments_of_the_function():
    assert custom("users_networks.two", arguments={"width": 3}).build(SPEC).get_submodule("head").weight.shape == (4, 5)
    with pytest.raises(InputError, match=r"^model.target=users_networks.two: .*'width'.*; allowed: .* takes a Spec"):
        custom("users_networks.two").check(SPEC)
    with pytest.raises(InputError, match=r"^model.target=users_networks.two: .*'height'.*takes a Spec, width, height"):
        custom("users_networks.two", arguments={"width": 3, "height": 4}).check(SPEC)


@pytest.mark.usefixtures("module")
def test_the_users_own_network_again():
    network, batch = custom("users_networks.build").build(SPEC), torch.rand(7, 2, 3)
    expected = network(batch)
    own = joined(network)
    whole = sys.modules["users_networks"].build(SPEC)
    whole.load_state_dict(own.state_dict())
    assert torch.equal(own(batch), expected)
    assert torch.equal(whole(batch), expected)


@pytest.mark.usefixtures("module")
def test_layers_named_by_numbers_need_no_quotes():
    by_number = custom("users_networks.build", head=2, freeze=["1.bias"])
    assert by_number == custom("users_networks.build", head="2", freeze=["1.bias"])
    assert by_number.build(SPEC).get_submodule("head").weight.shape == (4, 5)
    adapters = option("model/lora", "adapters", rank=2, targets=[1])
    assert adapters == option("model/lora", "adapters", rank=2, targets=["1"])
    with pytest.raises(InputError, match=r"^model.head=1.5: allowed: a string; or null$"):
        custom("users_networks.build", head=1.5)


@pytest.mark.usefixtures("module")
def test_a_linear_layer_that_does_not_compute_the_outputs_is_no_head():
    network, batch = custom("users_networks.doubled").build(SPEC), torch.rand(7, 2, 3)
    assert isinstance(network.get_submodule("head"), torch.nn.Identity)
    assert torch.equal(network(batch), 2 * network.encoder.layer(batch.flatten(1)))
    with pytest.raises(InputError, match="its outputs are not those of model.head=layer; name the layer that computes"):
        custom("users_networks.doubled", head="layer").build(SPEC)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    "outputs",
    [
        "2 * {}",
        "torch.tanh({})",
        "30 * torch.tanh({} / 30)",
        "{}.clamp(-50, 50)",
        "self.one * {}",
        "{} + self.zero",
        "torch.nn.functional.dropout({}, training=self.training)",
        "{} * [1.0][int(self.one != 1)]",  # it fails with other values of its parameters
    ],
)
def test_a_last_layer_whose_outputs_are_changed_is_no_head(outputs, tmp_path):
    """Also if those of the initial weights, such as zero, are hardly changed, or in training alone."""
    (tmp_path / "users_networks.py").write_text(
        "import torch\n"
        "class Changed(torch.nn.Module):\n"
        "    def __init__(self, spec):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(6, spec.classes)\n"
        "        torch.nn.init.zeros_(self.layer.weight)\n"
        "        torch.nn.init.zeros_(self.layer.bias)\n"
        "        self.one = torch.nn.Parameter(torch.ones(()))\n"
        "        self.register_buffer('zero', torch.zeros(()))\n"
        f"    def forward(self, x):\n        return {outputs.format('self.layer(x.flatten(1))')}\n"
    )
    network = custom("users_networks.Changed").build(SPEC)
    assert isinstance(network.get_submodule("head"), torch.nn.Identity)
    assert not network.get_parameter("encoder.layer.weight").any()
    assert (network.get_parameter("encoder.one").item(), network.get_buffer("encoder.zero").item()) == (1, 0)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("pattern", ["2.*", "2.weight", "2.bias"])
def test_a_last_layer_that_is_frozen_is_no_head(pattern):
    network, batch = custom("users_networks.build", freeze=[pattern]).build(SPEC), torch.rand(7, 2, 3)
    assert isinstance(network.get_submodule("head"), torch.nn.Identity)
    assert network(batch).shape == (7, 4)
    frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    assert frozen == {f"encoder.2.{name}" for name in ("weight", "bias") if pattern in ("2.*", f"2.{name}")}
    layout = layout_of(network)
    assert (layout.head_size, layout.trainable) == (0, {"2.*": 35, "2.weight": 39, "2.bias": 55}[pattern])
    with pytest.raises(InputError, match=r"^model.head=2: is frozen by model.freeze; "):
        custom("users_networks.build", freeze=[pattern], head=2).build(SPEC)


@pytest.mark.usefixtures("module")
def test_outputs_of_another_shape_are_refused():
    with pytest.raises(InputError, match=r"target=users_networks.doubled: gives 4 outputs per sample; allowed: .* 3 "):
        custom("users_networks.doubled").build(Spec((2, 3), 3))


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("users_network.build", r"^model.target=users_network.build: No module named 'users_network'; allowed: "),
        ("users_networks.built", r"^model.target=users_networks.built: module .* has no attribute 'built'"),
        (
            "build",
            r"^model.target=build: has no module; allowed: the dotted path of a function, such as "
            r"package\.module\.function$",
        ),
        (".build", "^model.target=.build: has no module; allowed: the dotted path of a function, such as "),
        ("..build", "^model.target=..build: has no module; allowed: "),
        ("users_networks.", "^model.target=users_networks.: has no module; allowed: "),
        ("broken.build", r"^model.target=broken.build: its module .*: ZeroDivisionError: .*broken.py, line 1\)$"),
        ("misspelt.build", "^model.target=misspelt.build: its module cannot be imported: SyntaxError: invalid syntax"),
        ("users_networks.number", "^model.target=users_networks.number: of type int; allowed: the dotted path"),
        (
            "users_networks.network",
            "target=users_networks.network: of type Flatten; allowed: the dotted path",
        ),
        ("users_networks.fails", r"fails: raises AttributeError: 'Spec' .* 'width' \(.*users_networks.py, line 9\)$"),
        ("builtins.len", r"len: raises TypeError: object of type 'Spec' has no len\(\) "),
        ("users_networks.Doubled", r"Doubled: too many positional arguments; allowed: a function that takes a Spec$"),
        ("users_networks.nothing", "^model.target=users_networks.nothing: returns a NoneType"),
        ("users_networks.two", "two: missing a required argument: 'width'; allowed: a function that takes a Spec$"),
        ("users_networks.pair", "users_networks.pair: gives a tuple of outputs; allowed: a tensor$"),
        ("users_networks.centred", r"replaces the buffer mean; allowed: changes in place, such as self.mean.copy_"),
        ("users_networks.scripted", "returns a RecursiveScriptModule; allowed: a torch.nn.Module that is not scri"),
    ],
)
def test_what_is_refused(target, message):
    with pytest.raises(InputError, match=message):
        custom(target).build(SPEC)


@pytest.mark.usefixtures("module")
def test_a_class_that_takes_the_spec():
    assert custom("users_networks.Sized").build(SPEC).get_submodule("head").weight.shape == (4, 6)


@pytest.mark.usefixtures("module")
def test_a_network_in_another_type_computes_in_float32():
    assert custom("users_networks.double").build(SPEC)(torch.rand(3, 2, 3)).dtype == torch.float32


def test_every_kind_of_batch_norm_in_every_place_becomes_group_norm():
    twice = torch.nn.BatchNorm1d(6)
    network = torch.nn.Sequential(twice, torch.nn.SyncBatchNorm(6), torch.nn.Sequential(twice))
    replace_batch_norm(network)
    assert [type(module) for module in network[:2]] == [torch.nn.GroupNorm] * 2
    assert network[2][0] is network[0] is not network[1]


@pytest.mark.usefixtures("module")
def test_batch_norm_of_features_becomes_group_norm():
    """Two groups of three features each, normalised by hand: (1, 2, 3) and (4, 6, 8) to ±1.2247."""
    encoder = custom("users_networks.normed", norm="group").build(SPEC).get_submodule("encoder")
    normalised = encoder(torch.tensor([[[1.0, 2, 3], [4, 6, 8]]]))
    torch.testing.assert_close(normalised, torch.tensor([[-1.2247, 0, 1.2247] * 2]), rtol=0, atol=1e-3)
