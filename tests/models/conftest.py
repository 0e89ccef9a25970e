from collections.abc import Callable

import pytest
import torch

CheckEqual = Callable[[torch.nn.Module, Callable[[], torch.nn.Module], torch.Tensor], None]


def count(network: torch.nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


@pytest.fixture
def same_network() -> CheckEqual:
    """Compares a network with a layer table written out in the test, drawn from the same seed."""

    def check(
        build: Callable[[], torch.nn.Module], layers: Callable[[], torch.nn.Module], inputs: torch.Tensor
    ) -> None:
        torch.manual_seed(5)
        network = build().eval()
        torch.manual_seed(5)
        expected = layers().eval()
        pairs = zip(network.parameters(), expected.parameters(), strict=True)
        assert all(torch.equal(own, other) for own, other in pairs)
        assert torch.equal(network(inputs), expected(inputs))

    return check
