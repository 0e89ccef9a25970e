"""The choice of an executor: the requested one, or by a rule."""

from __future__ import annotations

from fedrun.execution.context import ExecutionContext
from fedrun.execution.executor import Executor
from fedrun.execution.in_process import InProcess
from fedrun.execution.stacked import StackedPerceptron
from fedrun.execution.vectorized import Vectorized
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.precision import Precision
from fedrun.training.fused_sgd import LARGE

EXECUTORS: dict[str, type[Executor]] = {kind.name: kind for kind in (InProcess, Vectorized)}

FEWEST = 4
"""The smallest number of clients that the rule trains side by side."""


def trains_side_by_side(network: FlatNetwork, precision: Precision, clients: int) -> bool:
    """Whether ``vectorized`` is expected to be faster: for perceptrons, on a CPU without large layers, of some clients.

    Their steps cost little arithmetic, so one step for all clients saves most of the time. In process on a CPU the
    steps of large layers are fused, which is as fast. The rule measures nothing, so a repeated run is identical.

    Args:
        network: network of each client.
        precision: precision of the SGD steps.
        clients: number of clients of a round in this process.
    """
    on_gpu = network.vector.device.type == "cuda"
    return (
        precision == "float32"
        and clients >= FEWEST
        and (on_gpu or all(parameter.numel() < LARGE for parameter in network.network.parameters()))
        and StackedPerceptron.of(network.network) is not None
    )


def supported_executor(requested: str | None, context: ExecutionContext, clients: int) -> Executor:
    """The requested executor, or the one that trains clients in process if that does not support the work.

    Args:
        requested: a key of :data:`EXECUTORS`; None: by the rule.
        context: the work.
        clients: number of clients of a round in this process.
    """
    kind: type[Executor] = InProcess
    if requested is not None:
        kind = EXECUTORS[requested]
    elif trains_side_by_side(context.network, context.local.precision, clients):
        kind = Vectorized
    return InProcess(context) if kind.unsupported(context) else kind(context)
