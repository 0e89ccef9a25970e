import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

from fedrun.models.flat_network import FlatNetwork, Slot, layout_of
from fedrun.system.errors import InputError


def small_network(bias=True):
    """2 -> 3 (BatchNorm) -> 2 classes: 6 + 3 + 3 + 3 encoder parameters, a head of 6 + 2, 3 + 3 float buffers."""
    encoder = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(3, 2, bias=bias)))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return small_network()


@pytest.mark.parametrize(
    "network",
    [
        nn.Linear(2, 3),
        nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 3)),
        nn.Sequential(OrderedDict(encoder=nn.Identity(), head=nn.Sequential(nn.Linear(8, 3)))),
        nn.Sequential(OrderedDict(encoder=nn.Identity(), middle=nn.ReLU(), head=nn.Linear(8, 3))),
    ],
)
def test_another_network_than_an_encoder_and_a_head(network):
    with pytest.raises(
        InputError, match=r"^the model's network has the parts .+; allowed: encoder and head, a Linear "
    ):
        layout_of(network)


def test_a_users_buffer_named_residual_is_sent(network):
    network.encoder.register_buffer("residual", torch.ones(5))
    layout = layout_of(network)
    assert layout.uploaded == layout.size == 17 + 6 + 6 + 5


def test_frozen_parameters_and_constants_lie_outside_of_the_vector(network):
    network.encoder[0].weight.requires_grad_(False)
    network.encoder.register_buffer("angles", torch.ones(5), persistent=False)
    frozen = network.encoder[0].weight.clone()
    flat = FlatNetwork(network)
    assert [slot.name for slot in flat.layout.slots] == [
        "encoder.0.bias",
        "encoder.1.weight",
        "encoder.1.bias",
        "head.weight",
        "head.bias",
        "encoder.1.running_mean",
        "encoder.1.running_var",
    ]
    assert (flat.layout.trainable, flat.layout.size, flat.frozen_size) == (3 + 3 + 3 + 8, 17 + 6, 6)
    flat.load(torch.arange(23.0))
    assert torch.equal(network.encoder[0].weight, frozen) and torch.equal(flat.frozen["encoder.0.weight"], frozen)
    assert flat.initial[:9].tolist() != list(range(9))  # what the network was built with
    assert set(flat.tensors(flat.vector)) == set(network.state_dict()) - {"encoder.1.num_batches_tracked"}
    loss = network(torch.ones(2, 2)).sum()
    assert flat.backward(loss)[-2:].tolist() == [2.0, 2.0]  # of the head's biases


def test_the_fingerprint_of_frozen_parameters_follows_their_values(network):
    assert FlatNetwork(copy.deepcopy(network)).frozen_fingerprint == ""
    network.encoder[0].weight.requires_grad_(False)
    first, same = FlatNetwork(copy.deepcopy(network)), FlatNetwork(copy.deepcopy(network))
    with torch.no_grad():
        network.encoder[0].weight[0, 0] += 1e-6
    assert first.frozen_fingerprint == same.frozen_fingerprint != FlatNetwork(network).frozen_fingerprint


def test_a_network_without_a_head():
    network = nn.Sequential(OrderedDict(encoder=nn.Conv2d(1, 2, 2), head=nn.Identity()))
    layout = layout_of(network)
    assert (layout.trainable, layout.size, layout.head, layout.head_size) == (10, 10, slice(10, 10), 0)
    assert (layout.classes, layout.embedding) == (0, 0)


def sharing(network):
    network.encoder[0] = nn.Linear(2, 2)
    network.encoder[1] = nn.ReLU()
    network.head = nn.Linear(2, 2)
    network.head.weight = network.encoder[0].weight


def normalising(network):
    nn.utils.parametrizations.weight_norm(network.head)


@pytest.mark.parametrize(("change", "trainable"), [(sharing, 4 + 2 + 2), (normalising, 9 + 6 + 8 + 2)])
def test_a_head_whose_tensors_are_not_its_own_parameters_counts_as_none(network, change, trainable):
    change(network)
    layout = layout_of(network)
    assert (layout.head_size, layout.classes, layout.embedding) == (0, 0, 0)
    assert layout.trainable == trainable


def test_a_network_that_trains_nothing_is_refused(network):
    with pytest.raises(InputError, match=r"^the model has no trained parameter"):
        layout_of(nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Identity())))


def test_a_frozen_head_is_refused(network):
    network.head.weight.requires_grad_(False)
    with pytest.raises(InputError, match=r"^the model's head\.weight is frozen .*; allowed: in the encoder only"):
        layout_of(network)


def test_the_layout_is_encoder_head_buffers(network):
    layout = layout_of(network)
    assert layout.slots == (
        Slot("encoder.0.weight", (3, 2), 0, 6, "Linear"),
        Slot("encoder.0.bias", (3,), 6, 9, "Linear"),
        Slot("encoder.1.weight", (3,), 9, 12, "BatchNorm1d"),
        Slot("encoder.1.bias", (3,), 12, 15, "BatchNorm1d"),
        Slot("head.weight", (2, 3), 15, 21, "Linear"),
        Slot("head.bias", (2,), 21, 23, "Linear"),
        Slot("encoder.1.running_mean", (3,), 23, 26, "BatchNorm1d"),
        Slot("encoder.1.running_var", (3,), 26, 29, "BatchNorm1d"),
    )
    assert (layout.trainable, layout.size, layout.head) == (23, 29, slice(15, 23))
    assert (layout.classes, layout.embedding) == (2, 3)


def test_the_head_is_last_even_when_it_is_registered_first():
    network = nn.Sequential(OrderedDict(head=nn.Linear(3, 2), encoder=nn.Linear(2, 3)))
    assert [slot.name for slot in layout_of(network).slots] == [
        "encoder.weight", "encoder.bias", "head.weight", "head.bias",
    ]  # fmt: skip


def test_a_head_without_bias():
    layout = layout_of(small_network(bias=False))
    assert (layout.trainable, layout.size, layout.head) == (21, 27, slice(15, 21))
    head = torch.arange(6.0)
    assert layout.head_rows(head, with_bias=True).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert layout.head_entries(layout.head_rows(head, True), torch.empty(0)).equal(head)


def test_the_vector_holds_the_networks_values(network):
    ordinary = copy.deepcopy(network)
    flat = FlatNetwork(network)
    state = ordinary.state_dict()
    expected = torch.cat([state[slot.name].flatten() for slot in flat.layout.slots])
    assert torch.equal(flat.vector, expected)
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in state.items())


def test_tensors_share_memory_with_the_vector_both_ways(network):
    flat = FlatNetwork(network)
    flat.load(torch.arange(29.0))
    assert network.get_parameter("encoder.0.weight").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert network.get_parameter("head.bias").tolist() == [21, 22]
    assert network.get_buffer("encoder.1.running_var").tolist() == [26, 27, 28]
    with torch.no_grad():
        network.get_parameter("head.weight")[1, 2] = -1.0
    assert flat.vector[20] == -1
    base = flat.vector.data_ptr()
    for slot in flat.layout.slots:
        assert network.state_dict()[slot.name].data_ptr() == base + 4 * slot.start


def test_loading_copies(network):
    flat, model = FlatNetwork(network), torch.arange(29.0)
    flat.load(model)
    flat.vector.zero_()
    assert model.tolist() == list(range(29))


def test_backward_equals_autograd_on_an_ordinary_copy(network):
    ordinary = copy.deepcopy(network)
    flat = FlatNetwork(network)
    for seed in range(2):  # the second gradient replaces the first
        inputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(seed))
        labels = torch.tensor([0, 1, 1, 0, 1])
        gradient = flat.backward(nn.functional.cross_entropy(flat.network(inputs), labels))
        ordinary.zero_grad()
        nn.functional.cross_entropy(ordinary(inputs), labels).backward()
        expected = [ordinary.get_parameter(slot.name).grad.flatten() for slot in flat.layout.slots[:6]]
        assert torch.equal(gradient, torch.cat(expected))
        assert gradient is flat.gradient and gradient.shape == (23,)


def test_parameters_that_a_loss_does_not_use_have_zero_gradient(network):
    flat = FlatNetwork(network)
    flat.gradient.fill_(9.0)
    gradient = flat.backward(network.get_parameter("head.weight").sum())
    assert gradient[:15].count_nonzero() == 0 and gradient[21:].count_nonzero() == 0
    assert gradient[15:21].tolist() == [1] * 6


def test_an_sgd_step_on_the_vector_moves_the_network_and_spares_the_buffers(network):
    flat = FlatNetwork(network)
    flat.load(torch.ones(29))
    flat.gradient.fill_(2.0)
    flat.vector[: flat.layout.trainable].add_(flat.gradient, alpha=-0.25)
    assert all(parameter.unique().tolist() == [0.5] for parameter in network.parameters())
    assert network.get_buffer("encoder.1.running_mean").tolist() == [1, 1, 1]


def test_a_forward_pass_in_training_mode_moves_the_buffers_in_the_vector(network):
    ordinary = copy.deepcopy(network).train()
    flat = FlatNetwork(network.train())
    inputs = torch.randn(8, 2)
    flat.network(inputs)
    ordinary(inputs)
    buffers = dict(ordinary.named_buffers())
    assert torch.equal(flat.vector[23:26], buffers["encoder.1.running_mean"])
    assert torch.equal(flat.vector[26:29], buffers["encoder.1.running_var"])
    assert flat.vector[23:26].count_nonzero() == 3
    assert network.get_buffer("encoder.1.num_batches_tracked") == 1  # an integer, not in the vector


def test_views_of_a_cohort(network):
    layout = layout_of(network)
    cohort = torch.arange(3 * 29.0).view(3, 29)
    views = layout.views(cohort)
    assert list(views) == [slot.name for slot in layout.slots]
    assert views["encoder.0.weight"].shape == (3, 3, 2)
    assert views["head.bias"].tolist() == [[21, 22], [50, 51], [79, 80]]
    views["head.bias"][1, 0] = -1
    assert cohort[1, 21] == -1
    parameters_only = layout.views(cohort[:, : layout.trainable])
    assert list(parameters_only) == [slot.name for slot in layout.slots[:6]]


@pytest.mark.parametrize(
    ("with_bias", "expected"),
    [(False, [[0, 1, 2], [3, 4, 5]]), (True, [[0, 1, 2, 6], [3, 4, 5, 7]])],
)
def test_head_rows_and_their_inverse(network, with_bias, expected):
    layout, head = layout_of(network), torch.arange(8.0)
    rows = layout.head_rows(head, with_bias)
    assert rows.tolist() == expected
    assert layout.head_entries(rows, bias=head[6:]).equal(head)


def test_head_entries_take_the_bias_from_the_rows_where_they_have_it(network):
    rows = torch.tensor([[0.0, 1, 2, 6], [3, 4, 5, 7]])
    assert layout_of(network).head_entries(rows, bias=torch.tensor([-1.0, -1])).tolist() == list(range(8))
    assert layout_of(network).head_entries(rows[:, :3], torch.tensor([-1.0, -2])).tolist() == [0, 1, 2, 3, 4, 5, -1, -2]


def test_head_rows_of_a_cohort(network):
    layout = layout_of(network)
    cohort = torch.arange(4 * 29.0).view(4, 29)
    rows = layout.head_rows(cohort[:, layout.head], with_bias=True)
    assert rows.shape == (4, 2, 4)
    assert rows[2].tolist() == [[73, 74, 75, 79], [76, 77, 78, 80]]  # 2 * 29 + 15 = 73


def test_kernels_lie_channels_last():
    """A kernel's entry (o, i, y, x) of shape (2, 3, 2, 2) is number 12 o + 6 y + 3 x + i of the vector."""
    encoder = nn.Sequential(nn.Conv2d(3, 2, 2), nn.Flatten())
    network = nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(8, 2)))
    ordinary = copy.deepcopy(network)
    flat = FlatNetwork(network)
    kernel = network.get_parameter("encoder.0.weight")
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(kernel, ordinary.get_parameter("encoder.0.weight"))
    flat.load(torch.arange(float(flat.layout.size)))
    for o, i, y, x in [(0, 0, 0, 0), (1, 2, 0, 1), (0, 1, 1, 0)]:
        assert kernel[o, i, y, x] == 12 * o + 6 * y + 3 * x + i
    cohort = torch.arange(2.0 * flat.layout.size).view(2, -1)
    assert torch.equal(flat.layout.views(cohort)["encoder.0.weight"][0], kernel)
    assert flat.layout.views(cohort)["encoder.0.weight"].shape == (2, 2, 3, 2, 2)


def test_a_convolution_computes_the_same_channels_last():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
    network = nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(36, 2)))
    ordinary, flat = copy.deepcopy(network), FlatNetwork(network)
    inputs, labels = torch.randn(5, 3, 6, 6), torch.tensor([0, 1, 1, 0, 1])
    inputs[0] = 1.0  # equal numbers: the pooling layer must take the gradient to the first
    gradient = flat.backward(nn.functional.cross_entropy(network(inputs), labels))
    nn.functional.cross_entropy(ordinary(inputs), labels).backward()
    for name, found in flat.layout.views(gradient).items():
        torch.testing.assert_close(found, ordinary.get_parameter(name).grad, rtol=1e-5, atol=1e-6)


def test_counters_begin_anew_with_every_model():
    """BatchNorm without a momentum averages over the batches since then, so that nothing of another client is left."""
    network = nn.Sequential(OrderedDict(encoder=nn.BatchNorm1d(2, momentum=None), head=nn.Linear(2, 2)))
    flat = FlatNetwork(network)
    first, batch = flat.vector.clone(), torch.tensor([[1.0, 2.0], [3.0, 8.0]])
    for _ in range(2):
        flat.load(first)
        network(batch)
        assert network.get_buffer("encoder.running_mean").tolist() == [2.0, 5.0]
        assert network.get_buffer("encoder.num_batches_tracked").item() == 1


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("passes", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.passes += 1
        return self.layer(x)


def test_buffers_outside_of_the_vector_begin_anew_with_every_model():
    flat = FlatNetwork(nn.Sequential(OrderedDict(encoder=Counting(), head=nn.Linear(2, 2))))
    assert "encoder.passes" not in flat.layout.views(flat.vector)
    passes = flat.network.get_buffer("encoder.passes")
    for _ in range(2):
        flat.load(flat.vector.clone())
        with flat.unmoved_buffers():
            flat.network(torch.zeros(1, 2))
        assert passes.item() == 0
        flat.network(torch.zeros(1, 2))
        assert passes.item() == 1


@pytest.mark.parametrize("recurrent", [False, True])
def test_gradients_in_evaluation_mode(recurrent):
    """cuDNN's recurrent layers have none, so they are switched off; dropout is off, too."""

    class Last(nn.LSTM):
        def forward(self, inputs):
            used.append(torch.backends.cudnn.enabled)
            return super().forward(inputs[:, None])[0][:, 0]

    class Dense(nn.Linear):
        def forward(self, inputs):
            used.append(torch.backends.cudnn.enabled)
            return super().forward(inputs)

    used = []
    torch.manual_seed(0)
    layers = (Last(2, 3) if recurrent else Dense(2, 3), nn.Dropout(0.9))
    flat = FlatNetwork(nn.Sequential(OrderedDict(encoder=nn.Sequential(*layers), head=nn.Linear(3, 2))))
    ordinary, inputs = copy.deepcopy(flat.network).eval(), torch.randn(4, 2)
    gradient = flat.backward(flat.evaluated(inputs).square().sum()).clone()
    assert (used, torch.backends.cudnn.enabled) == ([not recurrent], True)
    ordinary(inputs).square().sum().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in ordinary.parameters()])
    torch.testing.assert_close(gradient, expected)


def test_a_parameter_without_dimensions():
    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(2, 3)
            self.scale = nn.Parameter(torch.tensor(2.0))

    flat = FlatNetwork(nn.Sequential(OrderedDict(encoder=Scaled(), head=nn.Linear(3, 2))))
    (slot,) = (slot for slot in flat.layout.slots if slot.name == "encoder.scale")
    assert slot.view(flat.vector).item() == 2.0
    assert slot.view(torch.stack([flat.vector, flat.vector])).tolist() == [2.0, 2.0]


def test_complex_parameters_are_rejected():
    encoder = nn.Linear(2, 3, dtype=torch.complex64)
    with pytest.raises(InputError, match=r"the model's encoder.weight is of torch.complex64; allowed: floating-point"):
        layout_of(nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(3, 2))))
