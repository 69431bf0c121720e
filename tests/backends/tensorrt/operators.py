"""Whether the ONNX of an operator computes what torch does, for the operators in torch's sample database.

ONNX Runtime runs the file that TensorRT's parser would get.
"""

from __future__ import annotations

import itertools
import signal
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from tests.backends.tensorrt.plans import lowered
from tests.keys.operators import Call
from trtcache.backends.onnx_export import to_onnx
from trtcache.backends.onnx_operators import why_no_onnx
from trtcache.lowering.interface import NOT_COMPUTED
from trtcache.lowering.rewriting import draws_random_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trtcache.lowering import LoweredProgram

SAMPLES = {torch.float32: 5, torch.int64: 3, torch.uint8: 1, torch.bool: 1, torch.float16: 1}
"""How many samples of each dtype are tried, drawn from at most a hundred."""

LIMIT_S = 60
ROOT = Path(__file__).parents[3]


class TooLongError(Exception):
    """An operator took more time than it is given."""


@dataclass(slots=True)
class Outcome:
    """What was found for one operator.

    Attributes:
        name: the operator, as the database calls it.
        equal: how many calls have torch's results in ONNX.
        different: calls with other results.
        left: reasons of calls that stay in torch.
        untold: what went wrong with calls that could not be compared.
    """

    name: str
    equal: int = 0
    different: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    untold: set[str] = field(default_factory=set)


class Calls(torch.nn.Module):
    """Several calls of one operator, of their tensors."""

    def __init__(self, function: Any, calls: Sequence[Call]) -> None:
        super().__init__()
        self.function = function
        self.calls = [pytree.tree_flatten((call.args, call.kwargs)) for call in calls]
        self.tensors = tuple(leaf for leaves, _ in self.calls for leaf in leaves if isinstance(leaf, torch.Tensor))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, results = iter(tensors), []
        for leaves, spec in self.calls:
            own = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(own, spec)
            found = pytree.tree_leaves(self.function(*args, **kwargs))
            results += [one for one in found if isinstance(one, torch.Tensor)]
        return tuple(results)


def names() -> list[str]:
    """Return the operators of the database, each once."""
    return list(dict.fromkeys(map(_name, op_db)))


def _name(one: Any) -> str:
    return f"{one.name}.{one.variant_test_name}" if one.variant_test_name else str(one.name)


def examine(name: str) -> Outcome:
    """Return whether the calls of an operator are the same in ONNX as in torch."""
    one, outcome = next(one for one in op_db if _name(one) == name), Outcome(name)

    def stop(*_: object) -> None:
        raise TooLongError

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            supported = one.supported_dtypes("cpu")
            calls = [call for dtype in SAMPLES if dtype in supported for call in _calls(one, dtype)]
            _examine(one.op, calls, outcome)
    except TooLongError:
        outcome.untold.add(f"more than {LIMIT_S} s")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
    return outcome


def _calls(one: Any, dtype: torch.dtype) -> Iterator[Call]:
    """Yield calls whose results ONNX can have, spread over the samples."""
    try:
        samples = list(itertools.islice(one.sample_inputs("cpu", dtype, requires_grad=False), 100))
    except Exception:  # noqa: BLE001  # whatever a sample function says on this machine
        return
    found = []
    for sample in samples:
        call = Call((sample.input, *sample.args), dict(sample.kwargs))
        tensors = Calls(one.op, [call]).tensors
        results: tuple[torch.Tensor, ...] = ()
        with suppress(Exception):  # whatever an operator says to arguments that it does not take
            results = Calls(one.op, [call])(*map(torch.clone, tensors))
        if tensors and results and all(map(_is_plain, (*tensors, *results))):
            found.append(call)
    yield from found[:: max(1, -(-len(found) // SAMPLES[dtype]))]


def _is_plain(tensor: torch.Tensor) -> bool:
    is_wide = tensor.is_complex() or tensor.dtype is torch.float64
    return bool(tensor.numel()) and tensor.layout is torch.strided and not is_wide


def _examine(function: Any, calls: list[Call], outcome: Outcome) -> None:
    """Compare all calls at once, and the halves of them if something is the matter."""
    if not calls:
        return
    single = Outcome("")
    _compare(function, calls, single)
    if len(calls) == 1 or not (single.different or single.left or single.untold):
        outcome.equal += single.equal
        outcome.different += single.different
        outcome.left |= single.left
        outcome.untold |= single.untold
        return
    half = len(calls) // 2
    _examine(function, calls[:half], outcome)
    _examine(function, calls[half:], outcome)


def _compare(function: Any, calls: list[Call], outcome: Outcome) -> None:
    model = Calls(function, calls)
    tensors = model.tensors
    try:
        program = lowered(model, tuple(map(torch.clone, tensors)))
        nodes = [node for node in program.order if node.op == "call_function"]
        if any(map(draws_random_numbers, nodes)):
            outcome.untold.add("it draws random numbers")
            return
        if left := {why for node in nodes if (why := why_no_onnx(node))}:
            outcome.left |= left
            return
        found = run(program, tensors)
    except TooLongError:
        raise
    except Exception as error:  # noqa: BLE001  # ONNX Runtime's errors have no class in common
        text = str(error).replace(f"{ROOT}/", "").replace("|", "/")
        outcome.untold.add(" ".join(text.split())[:160])
        return
    expected = model(*map(torch.clone, tensors))
    if any(one.dtype != other.dtype for one, other in zip(found, expected, strict=False)):
        outcome.untold.add("a result has another dtype, which a build refuses")
    elif len(found) == len(expected) and all(map(_same, found, expected)):
        outcome.equal += len(calls)
    else:
        outcome.different.append(_described(calls[0]))


def run(program: LoweredProgram, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the results of a lowered program in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    content = to_onnx(program, "tensorrt_rtx").content
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    # New contents of inputs are among the outputs.
    roles = [role for role in program.graph_module.graph.output_node().meta["roles"] if role.kind not in NOT_COMPUTED]
    given = {one.name: tensors[int(one.name.removeprefix("in"))].contiguous().numpy() for one in session.get_inputs()}
    found = zip(roles, session.run(None, given), strict=True)
    return [torch.from_numpy(one) for role, one in found if role.kind == "result"]


def _same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    is_half = expected.dtype is torch.float16
    # Sums in float16 are rounded in another order, and by their largest terms.
    near = 2e-3 * max(10.0, expected.abs().max().item()) if is_half else 2e-3
    return found.shape == expected.shape and torch.allclose(
        found.double(), expected.double(), rtol=2e-2 if is_half else 2e-3, atol=near, equal_nan=True
    )


def _described(call: Call) -> str:
    def described(leaf: object) -> object:
        is_tensor = isinstance(leaf, torch.Tensor)
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}" if is_tensor else leaf  # type: ignore[attr-defined]

    args, kwargs = pytree.tree_map(described, (call.args, call.kwargs))
    return ", ".join([*map(str, args), *(f"{name}={value}" for name, value in kwargs.items())]).replace("|", "/")
