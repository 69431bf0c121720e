"""What TensorRT tells while it builds: progress, its log, and errors with the line of the user's model."""

from __future__ import annotations

import itertools
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.backends.tensorrt.plans import Small, compiled, ids, lowered, network_of, onnx_of
from tests.prepare import prepare
from trtcache.backends.onnx_operators import OnnxModel
from trtcache.backends.tensorrt.build import parse, require_matching_ports
from trtcache.backends.tensorrt.callbacks import MessageRouter, get_logger
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.errors import BuildCancelledError, BuildError, UnsupportedOperatorError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_watcher_sees_every_phase_to_its_end(tmp_path: Path) -> None:
    """The outermost phase ends when all of its steps are done, and others are inside of it."""
    steps: list[trtcache.Step] = []
    with trtcache.watching(steps.append):
        compiled(Small(), (ids(),), tmp_path)
    outer = [one for one in steps if one.depth == 0]
    assert {one.phase for one in outer} == {"Building engine"}
    assert outer[-1].done == outer[-1].steps > 0
    assert max(one.depth for one in steps) > 0


def test_a_watcher_that_says_no_calls_the_build_off(tmp_path: Path) -> None:
    """Nothing of the build is stored, and the next one is not disturbed."""
    model = Small()
    with trtcache.watching(lambda _: False), pytest.raises(BuildCancelledError, match="nothing was stored"):
        compiled(model, (ids(),), tmp_path)
    assert not list(tmp_path.glob("entries/*/*"))
    assert compiled(model, (ids(),), tmp_path).report.partitions[0].outcome == "built"


def test_an_exception_of_the_watcher_comes_out_of_the_build(tmp_path: Path) -> None:
    """Ctrl-C, which Python raises in whatever runs, does not get lost in TensorRT's own code."""

    def interrupted(_: trtcache.Step) -> None:
        raise KeyboardInterrupt

    with trtcache.watching(interrupted), pytest.raises(KeyboardInterrupt):
        compiled(Small(), (ids(),), tmp_path)


def test_ctrl_c_calls_the_build_off(tmp_path: Path) -> None:
    """A real signal, taken wherever TensorRT calls back; nothing is stored, and the next one is taken as ever."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sent: list[trtcache.Step] = []

    def interrupted(step: trtcache.Step) -> None:
        if not sent:
            sent.append(step)
            signal.raise_signal(signal.SIGINT)

    try:
        with trtcache.watching(interrupted), pytest.raises(KeyboardInterrupt):
            compiled(Small(), (ids(),), tmp_path)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sent
    assert not list(tmp_path.glob("entries/*/*"))


class NoOnnx(nn.Module):
    """An operator that torch has no ONNX for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(x)[1]


class NoTensorRT(nn.Module):
    """An operator that TensorRT's parser does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.int16)


class Double(nn.Module):
    """A step in float64, between float32 ones."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x.double() + 1e-12) - x.double()).float()


class Complex(nn.Module):
    """A complex result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(x.view(4, 2, 2))


UNKNOWN = {
    "tensorrt": (NoTensorRT(), "Cast"),
    "float64": (Double(), "aten._to_copy.default"),
    "complex": (Complex(), "aten.view_as_complex.default"),
}


@pytest.mark.parametrize(("model", "operator"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_operator_that_nobody_knows_is_named_with_its_line(model: nn.Module, operator: str, tmp_path: Path) -> None:
    """The error has the operator and the file and line of the user's own model."""
    with pytest.raises(UnsupportedOperatorError, match=r"test_telling.py, line \d+, in forward") as raised:
        compiled(model, (torch.rand(4, 4),), tmp_path)
    assert raised.value.operator == operator
    assert "aot_inductor" in str(raised.value)


def test_what_torch_has_no_onnx_for_stays_in_torch() -> None:
    """Before anything is built; who builds it all the same is told the operator and its line."""
    x = torch.rand(4, 4)
    request = prepare(nn.Sequential(nn.Linear(4, 4), NoOnnx()), (x,), backend="tensorrt_rtx", target="sm_86")
    assert [one.why for one in request.division.left] == ["torch has no ONNX for aten._linalg_svd.default"]
    with pytest.raises(UnsupportedOperatorError, match=r"test_telling.py, line \d+, in forward") as raised:
        onnx_of(lowered(NoOnnx(), (x,)))
    assert raised.value.operator == "aten._linalg_svd"


def test_float64_weights_and_inputs_are_refused(tmp_path: Path) -> None:
    """TensorRT would take them for float32, so nothing is built of them."""
    for model, found in ((nn.ReLU(), "input 0 of the program"), (nn.Linear(4, 4).double(), "the weight .*weight")):
        with pytest.raises(BuildError, match=rf"{found} is float64.*model.float\(\)"):
            compiled(model, (torch.zeros(2, 4, dtype=torch.float64),), tmp_path)
    assert not list(tmp_path.glob("entries/*/*"))


def test_a_network_with_another_border_is_refused() -> None:
    """What the parser made is compared with the program: dtype, rank and sizes of each input and output."""
    program = lowered(nn.ReLU(), (torch.zeros(2, 4),))
    network, trt = network_of(onnx_of(program)), TENSORRT_RTX.load()
    require_matching_ports(trt, network, program.interface, ["in0"], "tensorrt_rtx")
    changes: list[dict[str, Any]] = [{"dtype": "float16"}, {"shape": (2, 4, 1)}, {"shape": (2, 9)}]
    for side, change in itertools.product(("inputs", "outputs"), changes):
        other = replace(program.interface, **{side: (replace(getattr(program.interface, side)[0], **change),)})
        with pytest.raises(BuildError, match=rf"the parser made {side[:-1]} .*which is .* in the program"):
            require_matching_ports(trt, network, other, ["in0"], "tensorrt_rtx")


def test_what_is_no_onnx_is_an_error_with_the_parsers_words() -> None:
    """Bytes that cannot be read are a BuildError, not a crash."""
    trt = TENSORRT_RTX.load()
    logger, ears = get_logger(trt)
    with ears.collect_errors() as errors, pytest.raises(BuildError, match="cannot read the program"):
        parse(trt, TENSORRT_RTX, logger, OnnxModel(b"junk", {}, (), (), {}), errors)


def test_errors_that_somebody_listens_to_are_not_printed_as_errors(caplog: pytest.LogCaptureFixture) -> None:
    """They become the message of an exception; without a listener they are errors of the log."""
    ears = MessageRouter()
    with caplog.at_level(logging.DEBUG, "trtcache.backends.tensorrt"):
        with ears.collect_errors() as errors:
            ears.route(logging.ERROR, "no memory")
            ears.route(logging.ERROR, "no memory")
            ears.route(logging.DEBUG, "a step")
        ears.route(logging.ERROR, "alone")
    assert errors.text == "no memory"
    assert [one.levelno for one in caplog.records] == [logging.INFO, logging.INFO, logging.DEBUG, logging.ERROR]
    with ears.collect_errors() as none:
        assert "it gave no reason" in none.text


def test_errors_of_builds_at_once_are_told_apart() -> None:
    """A thread that collects gets its own; those of a thread of TensorRT's may be anybody's."""
    ears = MessageRouter()

    def fail(line: str) -> str:
        with ears.collect_errors() as errors:
            ears.route(logging.ERROR, line)
        return errors.text

    with ears.collect_errors() as errors, ThreadPoolExecutor(1) as another:
        assert another.submit(fail, "out of memory").result() == "out of memory"
        ears.route(logging.ERROR, "no tactic")
        another.submit(ears.route, logging.ERROR, "of a worker").result()
    assert errors.text == "no tactic; of a worker"


def test_tensorrts_own_messages_are_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG the log has what TensorRT says of a build."""
    with caplog.at_level(logging.DEBUG, "trtcache.backends.tensorrt"):
        compiled(Small(), (ids(),), tmp_path)
    assert any(one.name == "trtcache.backends.tensorrt" for one in caplog.records)
