import pytest
import torch

from fedrun.data.datasets.base import Spec
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.leaf_shakespeare_lstm import LeafShakespeareLSTM
from fedrun.system.errors import InputError

from .conftest import count

SHAKESPEARE = Spec((80,), 80, 80)


def test_it_has_the_papers_parameters():
    network = LeafShakespeareLSTM(symbol_dim=8, embedding_dim=256, layers=2).build(SHAKESPEARE)
    sizes = [parameter.numel() for parameter in network.parameters()]
    assert [sizes[0], sum(sizes[1:5]), sum(sizes[5:9]), sum(sizes[9:])] == [640, 272_384, 526_336, 20_560]
    assert count(network) == 819_920


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2])
def test_the_last_time_step_equals_gates_computed_by_hand(layers):
    torch.manual_seed(0)
    network = LeafShakespeareLSTM(symbol_dim=3, embedding_dim=4, layers=layers).build(Spec((5,), 6, 7))
    tensors = dict(network.named_parameters())
    text = torch.tensor([[0, 6, 3, 3, 1], [5, 4, 3, 2, 1]])
    h, c = torch.zeros(layers, 2, 4), torch.zeros(layers, 2, 4)
    for step in range(5):
        inputs = tensors["encoder.symbols.weight"][text[:, step]]
        for layer in range(layers):
            w, r, bw, br = (
                tensors[f"encoder.lstm.{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            i, f, g, o = (inputs @ w.T + bw + h[layer] @ r.T + br).chunk(4, 1)
            c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
            h[layer] = o.sigmoid() * c[layer].tanh()
            inputs = h[layer]
    logits = inputs @ tensors["head.weight"].T + tensors["head.bias"]
    torch.testing.assert_close(network(text), logits)


def test_as_one_vector_it_computes_the_same():
    torch.manual_seed(0)
    network = LeafShakespeareLSTM(symbol_dim=3, embedding_dim=4, layers=2).build(Spec((5,), 6, 7))
    text = torch.randint(0, 7, (3, 5))
    before = network(text).detach()
    flat = FlatNetwork(network)
    torch.testing.assert_close(flat.network(text), before, rtol=0, atol=0)
    flat.load(torch.zeros_like(flat.vector))
    assert flat.network(text).count_nonzero() == 0


def test_numbers_are_refused():
    with pytest.raises(InputError, match="model=leaf_shakespeare_lstm reads texts of symbols, .* samples are 1x28x28$"):
        LeafShakespeareLSTM(symbol_dim=8, embedding_dim=256, layers=2).check(Spec((1, 28, 28), 10))
