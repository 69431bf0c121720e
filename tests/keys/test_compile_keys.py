"""The key of a program: what must not change it, and what must."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import trtcache
from trtcache.errors import CanonicalizationError
from trtcache.keys.graph_digest import graph_records

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

X = torch.randn(3, 4)
I = torch.arange(4)  # noqa: E741  # integers
Dim = torch.export.Dim


def key(model: nn.Module, *args: Any, **options: Any) -> str:
    """Return the digest of the key for a model called with these arguments."""
    return trtcache.key(model, args, **options).digest


class Program(nn.Module):
    """A function of a module with these weights and the arguments."""

    def __init__(self, function: Callable[..., Any], **weights: torch.Tensor | nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, one in weights.items():
            setattr(self, name, one)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def of(function: Callable[..., Any], *args: Any, **weights: torch.Tensor | nn.Module) -> str:
    """Return the key of a program."""
    return key(Program(function, **weights), *args)


def weight(*shape: int) -> nn.Parameter:
    """Return a weight with values of its own."""
    return nn.Parameter(torch.randn(*shape))


def linear() -> str:
    """Return the key that most tests compare with."""
    return key(nn.Linear(4, 4), X)


def buffered(function: Callable[..., Any], value: torch.Tensor, *, persistent: bool) -> Program:
    """Return a program with two buffers of equal value."""
    program = Program(function)
    program.register_buffer("q", value.clone(), persistent=persistent)
    program.register_buffer("p", value.clone(), persistent=persistent)
    return program


EQUAL: dict[str, Callable[[], tuple[str, str]]] = {
    "other weights": lambda: (linear(), linear()),
    "other values of the inputs": lambda: (linear(), key(nn.Linear(4, 4), torch.zeros(3, 4))),
    "a slice, which is copied": lambda: (linear(), key(nn.Linear(4, 4), torch.randn(6, 8)[::2, ::2])),
    "an input with a gradient": lambda: (linear(), key(nn.Linear(4, 4), X.clone().requires_grad_())),
    "renamed modules": lambda: (
        of(lambda s, x: s.one(x), X, one=nn.Linear(4, 4)),
        of(lambda s, x: s.other(x), X, other=nn.Linear(4, 4)),
    ),
    "weights in other order": lambda: (
        of(lambda s, x: x * s.a + s.b, X, a=weight(4), b=weight(4)),
        of(lambda s, x: x * s.b + s.a, X, a=weight(4), b=weight(4)),
    ),
    "a persistent buffer for a parameter": lambda: (
        of(lambda s, x: x * s.a, X, a=weight(4)),
        key(buffered(lambda s, x: x * s.q, torch.ones(4), persistent=True), X),
    ),
    "order of statements": lambda: (
        of(lambda s, x: (lambda sin, cos: sin + cos)(x.sin(), x.cos()), X),
        of(lambda s, x: (lambda cos, sin: sin + cos)(x.cos(), x.sin()), X),
    ),
    "dead code": lambda: (of(lambda s, x: x.sin(), X), of(lambda s, x: (x.cos(), x.sin())[1], X)),
    "a default that is written out": lambda: (
        of(lambda s, x: torch.add(x, x), X),
        of(lambda s, x: torch.add(x, x, alpha=1), X),
    ),
    "the name of a size": lambda: (dynamic(Dim("rows", max=8)), dynamic(Dim("b", max=8))),
    "another example of a size": lambda: (
        dynamic(Dim("rows", max=8)),
        key(nn.Linear(4, 4), torch.ones(7, 4), dynamic_shapes=({0: Dim("rows", max=8)},)),
    ),
}

DIFFERENT: dict[str, Callable[[], tuple[str, str]]] = {
    "softmax of another dimension": lambda: (of(lambda s, x: x.softmax(-1), X), of(lambda s, x: x.softmax(0), X)),
    "a - b and b - a": lambda: (of(lambda s, a, b: a - b, X, X + 1), of(lambda s, a, b: b - a, X, X + 1)),
    "x * 2 and x * 3": lambda: (of(lambda s, x: x * 2, X), of(lambda s, x: x * 3, X)),
    "2 and 2.0 on integers": lambda: (of(lambda s, x: x * 2, I), of(lambda s, x: x * 2.0, I)),
    "another keyword": lambda: (
        of(lambda s, x: torch.add(x, x), X),
        of(lambda s, x: torch.add(x, x, alpha=2), X),
    ),
    "dtype": lambda: (linear(), key(nn.Linear(4, 4).double(), X.double())),
    "shape": lambda: (linear(), key(nn.Linear(4, 4), torch.ones(2, 4))),
    "strides": lambda: (linear(), key(nn.Linear(4, 4), torch.ones(4, 3).t())),
    "no bias": lambda: (linear(), key(nn.Linear(4, 4, bias=False), X)),
    "order of outputs": lambda: (
        of(lambda s, x: (x.sin(), x.cos()), X),
        of(lambda s, x: (x.cos(), x.sin()), X),
    ),
    "structure of outputs": lambda: (
        of(lambda s, x: (x.sin(), x.cos()), X),
        of(lambda s, x: [x.sin(), x.cos()], X),
    ),
    "names of outputs": lambda: (of(lambda s, x: {"a": x.sin()}, X), of(lambda s, x: {"b": x.sin()}, X)),
    "a constant output": lambda: (of(lambda s, x: (x, 1), X), of(lambda s, x: (x, True), X)),
    "an unused input": lambda: (of(lambda s, a, b: a.sin(), X, X + 1), of(lambda s, a, b: b.sin(), X, X + 1)),
    "an input's value": lambda: (of(lambda s, x, n: x, X, 3), of(lambda s, x, n: x, X, 4)),
    "an input's type": lambda: (of(lambda s, x, n: x, X, 1), of(lambda s, x, n: x, X, True)),
    "tied weights": lambda: (
        (lambda w: of(lambda s, x: x @ s.a @ s.b, X, a=w, b=w))(weight(4, 4)),
        of(lambda s, x: x @ s.a @ s.b, X, a=weight(4, 4), b=weight(4, 4)),
    ),
    "which weight is used": lambda: (
        of(lambda s, x: x * s.a + s.b, X, a=weight(4), b=weight(4)),
        of(lambda s, x: x * s.a + s.a, X, a=weight(4), b=weight(4)),
    ),
    "a weight's layout": lambda: (
        of(lambda s, x: x @ s.a, X, a=weight(4, 4)),
        of(lambda s, x: x @ s.a, X, a=nn.Parameter(torch.randn(4, 4).t())),
    ),
    "a constant's content": lambda: (
        of(lambda s, x: x + torch.tensor([1.0, 2, 3, 4]), X),
        of(lambda s, x: x + torch.tensor([1.0, 2, 3, 5]), X),
    ),
    "a zero's sign": lambda: (of(lambda s, x: x * 0.0, X), of(lambda s, x: x * -0.0, X)),
    "content of a buffer that is in no state_dict": lambda: (
        key(buffered(lambda s, x: x + s.q, torch.ones(4), persistent=False), X),
        key(buffered(lambda s, x: x + s.q, torch.zeros(4), persistent=False), X),
    ),
    "a constant and a weight": lambda: (
        key(buffered(lambda s, x: x + s.q, torch.ones(4), persistent=False), X),
        key(buffered(lambda s, x: x + s.q, torch.ones(4), persistent=True), X),
    ),
    "which buffer is changed": lambda: (
        key(buffered(lambda s, x: (s.p.add_(1), x * s.p + s.q)[1], torch.ones(4), persistent=True), X),
        key(buffered(lambda s, x: (s.q.add_(1), x * s.p + s.q)[1], torch.ones(4), persistent=True), X),
    ),
    "a changed input": lambda: (of(lambda s, x: x.add_(1).sum(), X), of(lambda s, x: x.add(1).sum(), X)),
    "train and eval": lambda: (key(nn.BatchNorm1d(4).train(), X), key(nn.BatchNorm1d(4).eval(), X)),
    "a fixed and a varying size": lambda: (linear(), dynamic(Dim("rows", max=8))),
    "the range of a size": lambda: (dynamic(Dim("rows", max=8)), dynamic(Dim("rows", max=9))),
    "settings": lambda: (linear(), key(nn.Linear(4, 4), X, settings={"inductor": {"max_autotune": True}})),
    "target": lambda: (linear(), key(nn.Linear(4, 4), X, target="x86-64-v2")),
    "which results share memory": lambda: (
        of(lambda s, x: ((h := x * 2).view(-1), h), X),
        of(lambda s, x: ((x * 2).view(-1), x * 2), X),
    ),
    "which of two equal results is shown by a view": lambda: (
        of(lambda s, x: ((h := x * 2).view(-1), h, x * 2), X),
        of(lambda s, x: ((h := x * 2).view(-1), x * 2, h), X),
    ),
    "causal attention": lambda: (attention(causal=False), attention(causal=True)),
}


def dynamic(rows: Any) -> str:
    """Return the key of a linear layer whose number of rows varies."""
    return key(nn.Linear(4, 4), X, dynamic_shapes=({0: rows},))


def attention(*, causal: bool) -> str:
    """Return the key of an attention."""
    q = torch.ones(1, 2, 3, 4)
    return of(lambda s, q: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal), q)


@pytest.mark.parametrize("what", sorted(EQUAL))
def test_keys_are_equal_in_spite_of(what: str) -> None:
    """What does not change the meaning of a program does not change its key."""
    one, other = EQUAL[what]()
    assert one == other


@pytest.mark.parametrize("what", sorted(DIFFERENT))
def test_keys_differ_by(what: str) -> None:
    """Every change of meaning changes the key."""
    one, other = DIFFERENT[what]()
    assert one != other


def test_the_backend_is_in_the_key(interpreter: str) -> None:
    """Two backends never share an entry."""
    assert linear() != key(nn.Linear(4, 4), X, backend=interpreter)


def test_grad_and_inference_mode_seeds_and_threads_are_not_in_the_key() -> None:
    """What a process is doing besides does not part equal programs."""
    expected, threads = linear(), torch.get_num_threads()
    with torch.no_grad():
        assert linear() == expected
    with torch.inference_mode():
        assert linear() == expected
    torch.manual_seed(1)
    torch.set_num_threads(1)
    found = linear()
    torch.set_num_threads(threads)
    assert found == expected


PROGRAM = """
import ctypes, mmap, os, torch, trtcache
from torch import nn

def unreadable(weight):
    area = mmap.mmap(-1, mmap.PAGESIZE)
    kept.append(area)
    tensor = torch.frombuffer(area, dtype=weight.dtype, count=weight.numel()).view(weight.shape)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(tensor.data_ptr()), mmap.PAGESIZE, 0) == 0
    return tensor

kept = []
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
if "UNREADABLE" in os.environ:
    for parameter in model.parameters():
        parameter.data = unreadable(parameter.data)
print(trtcache.key(model, (torch.ones(3, 4),)).digest, flush=True)
os._exit(0)
"""


def test_another_process_with_other_hashes_and_unreadable_weights_has_the_same_key(
    start_fresh_python: Callable[..., Any],
) -> None:
    """Keys depend on no seed of Python's hashes and on no cache of Inductor; reading a weight would be a SIGSEGV."""
    environs = (
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "2", "TORCHINDUCTOR_CACHE_DIR": "/nowhere", "UNREADABLE": "1"},
    )
    running = [start_fresh_python(PROGRAM, **environ) for environ in environs]
    assert len({_printed(process) for process in running}) == 1


def _printed(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(out.strip()) == 64
    return out.strip()


def test_the_document_names_no_path_host_or_user() -> None:
    """A key document is the same on every machine of a kind."""
    document = str(trtcache.key(nn.Linear(4, 4), (X,)).document)
    for word in (str(Path.cwd()), str(Path.home()), platform.node(), f"'{getpass.getuser()}'", "p_weight", "Linear"):
        assert word not in document


def test_a_function_without_a_schema_has_no_digest() -> None:
    """A graph with something in it that cannot be described has no key, rather than a wrong one."""
    program = trtcache.lower(nn.Linear(4, 4), (X,))
    program.order[-1].target = print
    with pytest.raises(CanonicalizationError, match="has no digest"):
        graph_records(program)


Drawing = list[tuple[int, tuple[int, ...]]]
UNARY = [torch.sin, torch.relu, torch.neg]
BINARY = [torch.add, torch.sub, torch.mul]


@st.composite
def expressions(draw: st.DrawFn) -> Drawing:
    """Draw a graph: for each node an operator's number, and the earlier values it takes (0 and 1 are the inputs)."""
    nodes = []
    for place in range(2, 2 + draw(st.integers(1, 6))):
        operator = draw(st.integers(0, len(UNARY) + len(BINARY) - 1))
        count = 1 if operator < len(UNARY) else 2
        nodes.append((operator, tuple(draw(st.integers(0, place - 1)) for _ in range(count))))
    return nodes


class Drawn(nn.Module):
    """Runs a drawn graph; ``late`` computes its nodes on demand from the last, so in another order."""

    def __init__(self, nodes: Drawing, *, late: bool) -> None:
        super().__init__()
        self.nodes, self.late = nodes, late

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values: dict[int, torch.Tensor] = {0: x, 1: y}
        if not self.late:
            for place in range(2, 2 + len(self.nodes)):
                self._value(place, values)
        return self._value(1 + len(self.nodes), values)

    def _value(self, place: int, values: dict[int, torch.Tensor]) -> torch.Tensor:
        if place not in values:
            operator, used = self.nodes[place - 2]
            # The last argument first: the order of statements is the reverse of the usual one.
            given = {one: self._value(one, values) for one in reversed(used)}
            values[place] = (UNARY + BINARY)[operator](*(given[one] for one in used))
        return values[place]


@settings(max_examples=10, deadline=None, database=None)
@given(expressions(), st.data())
def test_random_graphs_have_the_key_of_what_they_mean(nodes: Drawing, data: st.DataObject) -> None:
    """Any order of statements gives one key; programs that an operator makes answer otherwise have two."""
    place = data.draw(st.integers(0, len(nodes) - 1))
    same = range(len(UNARY)) if nodes[place][0] < len(UNARY) else range(len(UNARY), len(UNARY) + len(BINARY))
    changed = [*nodes]
    changed[place] = (data.draw(st.sampled_from(same)), nodes[place][1])
    first, other = Drawn(nodes, late=False), Drawn(changed, late=False)
    assert key(Drawn(nodes, late=True), X, X + 1) == key(first, X, X + 1)
    if key(other, X, X + 1) == key(first, X, X + 1):
        assert torch.equal(other(X, X + 1), first(X, X + 1))
