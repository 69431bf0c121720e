"""Tensors, modules and torch's state between two compiles. They are added to ``field_scenarios``."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model


def _edit(doc: str, before: str, after: str, init: str = "pass", top: str = "", **more: object) -> None:
    """Add a scenario: the expression that forward returns is edited."""
    _add(doc, _model(before, init, top), "", (f"return {before}\n", f"return {after}\n"), **more)


# Numbers
_edit("the bias that is added is minus zero", "x * 0.0 + 0.0", "x * 0.0 + -0.0")
_edit("a clamp limit becomes minus zero", "1.0 / (x - 20.0).clamp(max=0.0).mul(0.0).add(0.0)",
      "1.0 / (x - 20.0).clamp(max=0.0).mul(0.0).add(-0.0)")
_edit("a float literal differs in its last bit", "x.double() * 0.1", "x.double() * 0.10000000000000002")
_edit("a float32 scale from NumPy replaces the same literal", "x.double() * 0.1", "x.double() * float(np.float32(0.1))",
      top="import numpy as np")
_edit("True replaces 1 for integers of a mask", "(x > 3) + 1", "(x > 3) + True")
_edit("a float factor of an integer tensor becomes an int", "x.long() * 2.0", "x.long() * 2")
_edit("an integer literal beyond 2**53 is one larger", "x.long() + 9007199254740992", "x.long() + 9007199254740993")
_edit("an int is written as the float of the same value", "x.long() + 9007199254740993", "x.long() + 9007199254740993.0")
_edit("a mask is filled with nan instead of inf", "x.masked_fill(x > 3, float('inf'))", "x.masked_fill(x > 3, float('nan'))")
_edit("nan becomes its negative, which prints the same", "x + torch.tensor(float('nan'))", "torch.copysign(x, torch.tensor(-float('nan')))")
_edit("a complex factor has a minus zero as its real part", "x * complex(0.0, 1.0)", "x * complex(-0.0, 1.0)")
_edit("the imaginary part of a complex scalar is minus zero", "torch.full((2,), complex(1.0, 0.0)).sqrt()",
      "torch.full((2,), complex(1.0, -0.0)).sqrt()")
_add("a rate is a subclass of float whose text does not say its value",
     _model("x * self.rate", "self.rate = Rate(2.0)", """
     class Rate(float):
         def __repr__(self):
             return "rate"
         __str__ = __repr__
     """), "model.rate = app.Rate(3.0)")
_add("a count is a subclass of int that prints as a name",
     _model("x.repeat(self.n, 1)", "self.n = Count(2)", """
     class Count(int):
         def __repr__(self):
             return "count"
         __str__ = __repr__
         def __format__(self, spec):
             return "count"
     """), "model.n = app.Count(3)")
_add("members of an IntEnum with a text of their own are exchanged",
     _model("x.sum(dim=self.axis)", "self.axis = Axis.ROWS", """
     import enum
     class Axis(enum.IntEnum):
         ROWS = 0
         COLUMNS = 1
         def __repr__(self):
             return "axis"
         __str__ = __repr__
     """), "model.axis = app.Axis.COLUMNS")
_add("a mode is a subclass of str that prints as another",
     _model("F.gelu(x, approximate=self.kind)", "self.kind = Kind('none')", """
     class Kind(str):
         def __repr__(self):
             return "kind"
         __str__ = __repr__
     """), "model.kind = app.Kind('tanh')")
_add("a Fraction becomes a Decimal of another value",
     _model("x * float(self.by)", "self.by = Fraction(1, 3)", "from fractions import Fraction\nfrom decimal import Decimal"),
     "model.by = app.Decimal('0.3333')")
_add("a size is numpy.int64 instead of int", _model("x.view(self.n, -1)", "self.n = 4"),
     "import numpy\nmodel.n = numpy.int64(4)", harmless=True)
_add("a rate is numpy.float64 of the same value", _model("x * self.n", "self.n = 0.7"),
     "import numpy\nmodel.n = numpy.float64(0.7)", harmless=True)
_add("a rate is numpy.float32, whose value is another", _model("x * float(self.n)", "self.n = 0.7"),
     "import numpy\nmodel.n = numpy.float32(0.7)")
_edit("an int32 constant becomes an int64 one", "x + torch.tensor([1, 2, 3, 4], dtype=torch.int32)",
      "x.int() + torch.tensor([1, 2, 3, 4], dtype=torch.int64)")
_edit("a scalar tensor replaces a Python number, which promotes otherwise", "x.half() * 2.5", "x.half() * torch.tensor([2.5])")
_edit("the 0-dim constant has double precision, and the result does not", "x * torch.tensor(0.1)",
      "x * torch.tensor(0.1, dtype=torch.float64)")
_edit("a shift of an int8 overflows after an edit", "x.to(torch.int8) * 12", "x.to(torch.int8) * 120")
_edit("integers are divided and rounded to the other side", "torch.div(x - 5, 2, rounding_mode='floor')",
      "torch.div(x - 5, 2, rounding_mode='trunc')")
_edit("remainder becomes fmod", "torch.remainder(x - 5, 3)", "torch.fmod(x - 5, 3)")
_edit("std is not corrected", "x.std(dim=1)", "x.std(dim=1, correction=0)")
_edit("sum accumulates in double", "x.sum()", "x.sum(dtype=torch.float64).float()")
_edit("sorting becomes stable", "torch.sort(x.long() % 2, dim=1)[1]", "torch.sort(x.long() % 2, dim=1, stable=True)[1]")
_edit("arange counts to a float", "torch.arange(4) + x", "torch.arange(4.0) + x.long()")
_edit("full gets True instead of 1", "torch.full((2,), 1)", "torch.full((2,), True)")
_edit("linspace is computed in double", "torch.linspace(0, 1, 7)", "torch.linspace(0, 1, 7, dtype=torch.float64)")
_edit("a bool is summed as numbers of another dtype", "(x > 3).sum(dtype=torch.int32)", "(x > 3).sum(dtype=torch.int64)")
_edit("a large int does not fit into 64 bits", "x.long() + 9223372036854775807", "x.long() + 9223372036854775808")
_edit("a subnormal is written with another exponent", "x.double() + 5e-324", "x.double() + 1e-323")
_edit("a literal overflows to inf", "x.double().clamp(max=1e308)", "x.double().clamp(max=1e309)")
_edit("math.pow has ints, which an export computes as ints", "x.long() * int(math.pow(2, 3))", "x.long() * math.pow(2, 3)", top="import math")
_edit("the builtin max of a tensor and a number gets another limit", "max(x, 3.0)", "max(x, 4.0)")
_edit("the builtin max of two tensors becomes min", "max(x, x * 2 - 4)", "min(x, x * 2 - 4)")
_edit("a constant list has an int among floats", "x + torch.tensor([1, 2, 3, 4])", "x + torch.tensor([1, 2, 3, 4.5])")
_edit("a tensor is built from a nested list of other nesting", "torch.tensor([[1.0], [2.0]])", "torch.tensor([[1.0, 2.0]])")
_add("the values that a tensor is built from in forward are edited", _model("x * torch.tensor(self.v).item()", "self.v = 2.0"), "model.v = 3.0")
_add("columns are taken by a list that is a tensor only in forward",
     _model("x[:, torch.tensor(self.v)]", "self.v = [0, 1]"), "model.v = [1, 0]")
_add("a branch is taken by a tensor that is built in forward",
     _model("return x * 2 if bool(torch.tensor(self.v) > 2) else x * 3", "self.v = 1"), "model.v = 4")

# Outputs
_edit("the input itself is returned beside the result", "(x * 2, x)", "(x * 2, x.clone())")
_edit("a result is returned twice instead of its copy", "(lambda y: (y, y))(x * 2)", "(lambda y: (y, y.clone()))(x * 2)")
_edit("a list becomes a tuple in the output", "[x * 2, x * 3]", "(x * 2, x * 3)")
_edit("the keys of the output are in another order", "{'a': x * 2, 'b': x * 2}", "{'b': x * 2, 'a': x * 2}")
_edit("the keys of the output are exchanged", "(lambda a, b: {'a': a, 'b': b})(x * 2, x * 3)",
      "(lambda a, b: {'a': b, 'b': a})(x * 2, x * 3)")
_edit("the key of an output is True instead of 1", "{1: x * 2}", "{True: x * 2}")
_edit("the key of an output is 1.0 instead of 1", "{1: x * 2, 2: x}", "{1.0: x * 2, 2: x}")
_edit("None is returned where an empty tuple was", "(x * 2, None)", "(x * 2, ())")
_edit("a flag in the output is 1 instead of True", "(x * 2, True)", "(x * 2, 1)")
_edit("a constant in the output is minus zero", "(x * 2, 0.0)", "(x * 2, -0.0)")
_edit("a constant in the output becomes nan", "(x * 2, float('inf'))", "(x * 2, float('nan'))")
_edit("a constant in the output is a NumPy float", "(x * 2, 0.5)", "(x * 2, np.float64(0.5))", top="import numpy as np")
_edit("a text in the output is edited", "{'logits': x * 2, 'version': 'v1'}", "{'logits': x * 2, 'version': 'v2'}")
_edit("the output has the dtype that was used", "(x * 2, 'float32')", "(x * 2, torch.float32)")
_edit("the output has a set, which an export does not know", "(x * 2, ('a',))", "(x * 2, {'a'})")
_edit("the output is an object of a class that is no pytree", "Result(x * 2)", "Box(x * 2)", top="""
from typing import NamedTuple
class Result(NamedTuple):
    y: torch.Tensor
class Box:
    def __init__(self, y):
        self.y = y
""")
_edit("the output is another class of named tuples", "One(x * 2, x * 3)", "Two(x * 2, x * 3)", top="""
import collections
One = collections.namedtuple("One", "a b")
Two = collections.namedtuple("Two", "a b")
""")
_edit("an OrderedDict is returned instead of a dict", "{'y': x * 2}", "OrderedDict(y=x * 2)", top="from collections import OrderedDict")
_edit("a deque in the output gets a limit", "deque([x * 2, x])", "deque([x * 2, x], maxlen=5)", top="from collections import deque")
_edit("a defaultdict with another factory is returned", "defaultdict(list, y=x * 2)", "defaultdict(dict, y=x * 2)",
      top="from collections import defaultdict")
_edit("a weight is returned instead of its copy", "(x * 2, self.lin.weight)", "(x * 2, self.lin.weight.clone())")
_edit("the other of two equal weights is returned", "(x * 2, self.a)", "(x * 2, self.b)",
      "self.a = nn.Parameter(torch.ones(4))\nself.b = nn.Parameter(torch.zeros(4))")
_edit("the shape is returned as a torch.Size", "(x * 2, tuple(x.shape))", "(x * 2, x.shape)")
_edit("the rows are returned as ints and the columns as text", "(x * 2, x.shape[0])", "(x * 2, str(x.shape[0]))")
_edit("a slice object is returned", "(x * 2, 3)", "(x * 2, slice(3))")
_edit("a subclass of int with a text of its own is returned", "(x * 2, N(2))", "(x * 2, N(3))", top="""
class N(int):
    def __repr__(self):
        return "N"
""")
_edit("a subclass of str is returned instead of a str", "(x * 2, 'a')", "(x * 2, S('a'))", top="class S(str):\n    pass")
_edit("an enum member with a value is returned", "(x * 2, 1)", "(x * 2, K.A)", top="import enum\nclass K(enum.IntEnum):\n    A = 1")
_add("a dataclass of the output has its fields in another order",
     _model("Out(a=x * 2, b=x * 3)", "pass", """
     from dataclasses import dataclass
     @dataclass
     class Out:
         a: torch.Tensor
         b: torch.Tensor
     torch.export.register_dataclass(Out)
     """), "", ("    a: torch.Tensor\n    b: torch.Tensor", "    b: torch.Tensor\n    a: torch.Tensor"))
_add("a dataclass of the output gets an optional field",
     _model("Out(a=x * 2)", "pass", """
     from dataclasses import dataclass
     @dataclass
     class Out:
         a: torch.Tensor
         b: torch.Tensor | None = None
     torch.export.register_dataclass(Out)
     """), "", ("    b: torch.Tensor | None = None\n", "    b: torch.Tensor | None = None\n    c: int = 3\n"))
_add("a registered container flattens its tensors the other way round",
     _model("Pair(x * 2, x * 3)", "pass", """
     class Pair:
         def __init__(self, a, b):
             self.a, self.b = a, b
     import torch.utils._pytree as pytree
     pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda v, c: Pair(*v), serialized_type_name="app.Pair")
     """), "", ("lambda p: ([p.a, p.b], None), lambda v, c: Pair(*v)", "lambda p: ([p.b, p.a], None), lambda v, c: Pair(*v[::-1])"))
_add("a registered container keeps a name in its context, which is edited",
     _model("Named(x * 2, 'logits')", "pass", """
     class Named:
         def __init__(self, a, name):
             self.a, self.name = a, name
     import torch.utils._pytree as pytree
     pytree.register_pytree_node(Named, lambda p: ([p.a], p.name), lambda v, c: Named(v[0], c), serialized_type_name="app.Named")
     """), "", ("'logits')", "'hidden')"))
_add("transformers' output class leaves out a field that is None",
     _model("Out(logits=x * 2, loss=None)", "pass", """
     from dataclasses import dataclass
     from transformers.utils import ModelOutput
     @dataclass
     class Out(ModelOutput):
         loss: torch.Tensor | None = None
         logits: torch.Tensor | None = None
     """), "", ("loss=None", "loss=(x * 2)"))
_edit("nested empty containers of the output change", "{'y': x * 2, 'hidden': []}", "{'y': x * 2, 'hidden': {}}")
_edit("the output is a bare tensor instead of a tuple of one", "(x * 2,)", "x * 2")
_edit("the model returns nothing but None", "(x * 2, None)[0]", "(x * 2, None)[1]")
_edit("a constant is returned instead of the equal new tensor", "(x * 2, torch.ones(2))", "(x * 2, self.c)", "self.c = torch.ones(2)")
_edit("one of two equal results is returned in place of the other", "(lambda a, b: (a, b))(x + 1, x + 2)", "(lambda a, b: (b, a))(x + 1, x + 2)")

# What a tensor is, asked in forward: an edited line asks, and the answer is not what the old literal said
def _asks(doc: str, question: str, y: str = "x", init: str = "pass", top: str = "", old: str = "3", **more: object) -> None:
    """Add a scenario: the factor 3 was literal, and then depends on a question about a tensor."""
    _add(doc, _model(f"y = {y}\nn = {old}\nreturn x * n, y", init, top), "", (f"n = {old}\n", f"n = 2 if {question} else 3\n"), **more)


_asks("the factor depends on whether a transposed tensor is a view", "y._is_view()", "x.t()")
_asks("the factor depends on whether a slice shares memory with the input", "torch._C._is_alias_of(x, y)", "x[1:]")
_asks("the factor depends on whether the base of a slice is the input", "y._base is x", "x[1:]")
_asks("the factor depends on the offset of a slice in its memory", "y.storage_offset() == 4", "x[1:]")
_asks("the factor depends on the strides of a transposed tensor", "y.stride() == (1, 4)", "x.t()")
_asks("the factor depends on whether a permuted result is contiguous", "not y.is_contiguous()", "x.t() + 1")
_asks("the factor depends on the memory that a result has", "y.untyped_storage().nbytes() == 48", "x.t() + 1")
_asks("the factor depends on the version counter after an in-place operation", "y._version == 1", "(x + 1).mul_(2)")
_asks("the factor depends on whether a result requires a gradient", "y.requires_grad", "self.lin(x)")
_asks("the factor depends on the name of a result's gradient function", "type(y.grad_fn).__name__ == 'AddmmBackward0'", "self.lin(x)")
_asks("the factor depends on whether a result is a leaf", "y.is_leaf", "x + 1")
_asks("the factor depends on whether a result is conjugated", "y.is_conj()", "torch.complex(x, x).conj()")
_asks("the factor depends on whether a result has the negative bit", "y.is_neg()", "torch.complex(x, x).conj().imag")
_asks("the factor depends on whether a detached tensor is the same object", "y is not x", "x.detach()")
_asks("the factor depends on whether contiguous returns the same object", "not (y is x)", "x.contiguous()")
_asks("the factor depends on whether to() returns the same object", "y is x", "x.to(torch.float32)")
_asks("the factor depends on whether the class of a weight is Parameter", "isinstance(self.lin.weight, nn.Parameter)")
_asks("the factor depends on an attribute that a weight has", "not (hasattr(self.lin.weight, 'scale'))", init="self.lin.weight.scale = 2")
_asks("the factor depends on whether a weight is a leaf", "self.lin.weight.is_leaf")
_asks("the factor depends on whether a weight has a gradient", "self.lin.weight.grad is None")
_asks("the factor depends on the version counter of a weight", "self.lin.weight._version == 0")
_asks("the factor depends on whether a parameter is found in a dict", "not (self.lin.weight in self.seen)", init="self.seen = {self.lin.weight: 1}")
_asks("the factor depends on whether a parameter is the one that init saw", "not (self.lin.weight is self.same[0])", init="self.same = [self.lin.weight]")
_asks("the factor depends on how deep the stack of dispatch modes is",
      "not (len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()) > 1)")
_asks("the factor depends on whether a torch function mode is active", "torch._C._is_torch_function_mode_enabled()")
_asks("the factor depends on torch.compiler.is_exporting", "torch.compiler.is_exporting()")
_asks("the factor depends on torch.compiler.is_compiling", "torch.compiler.is_compiling()")
_asks("the factor depends on torch._dynamo.is_compiling", "torch._dynamo.is_compiling()", top="import torch._dynamo")
_asks("the factor depends on torch.jit.is_tracing", "not (torch.jit.is_tracing())")
_asks("the factor depends on the fake mode that a guard finds", "torch._guards.detect_fake_mode(x).shape_env is not None", top="import torch._guards")
_asks("the factor depends on torch's tracing context", "torch._guards.TracingContext.try_get() is not None", top="import torch._guards")
_asks("the factor depends on the configuration of Dynamo while exporting", "torch._dynamo.config.capture_dynamic_output_shape_ops", top="import torch._dynamo")
_asks("the factor depends on whether the builtin max is torch's", "max is not type and not hasattr(max, '__self__') or hasattr(max, 'func')")
_asks("the factor depends on whether math.pow returns an int", "isinstance(math.pow(2, 2), int)", top="import math")
_asks("the factor depends on whether the input is on the meta device", "not (x.is_meta)")
_asks("the factor depends on whether the memory of an input can be addressed", "not (addressed(x))", top="""
def addressed(x):
    try:
        return x.data_ptr() != 0
    except Exception:
        return False
""")
_asks("the factor depends on whether a value can be read", "readable(x)", top="""
def readable(x):
    try:
        x.sum().item()
        return True
    except Exception:
        return False
""")
_asks("the factor depends on whether a branch on a value fails", "branches(x)", top="""
def branches(x):
    try:
        return bool(x.sum() > 0)
    except Exception:
        return False
""")
_asks("the factor depends on the class of the error of a branch on a value", "branches(x) == 'GuardOnDataDependentSymNode'", top="""
def branches(x):
    try:
        return bool(x.sum() > 0)
    except Exception as e:
        return type(e).__name__
""")
_asks("the factor depends on whether a tensor can be converted to NumPy", "not (converts(x))", top="""
def converts(x):
    try:
        x.numpy()
        return True
    except Exception:
        return False
""")
_asks("the factor depends on the number of threads of the intra-op pool", "torch.get_num_threads() == 1")
_asks("the factor depends on which thread runs forward", "threading.current_thread() is threading.main_thread()", top="import threading")
_asks("the factor depends on a context variable that is set at import", "VAR.get() == 1", top="import contextvars\nVAR = contextvars.ContextVar('v', default=0)\nVAR.set(1)")
_asks("the factor depends on whether gradients are enabled in forward", "torch.is_grad_enabled()")
_asks("the factor depends on whether inference mode is on in forward", "not (torch.is_inference_mode_enabled())")
_asks("the factor depends on the text of a tensor", "'FakeTensor' in repr(x)")
_asks("the factor depends on the class of the input", "type(x).__name__ == 'FakeTensor'")
_asks("the factor depends on the class of a result", "type(y).__name__ == 'FakeTensor'", "x + 1")
_asks("the factor depends on whether the constant of a built tensor is known", "torch.tensor([1.0, 2.0]).sum().item() == 3.0")
_asks("the factor depends on whether the input keeps its gradient", "not x.retains_grad")
_asks("the factor depends on whether pinned memory is used", "x.is_pinned()")
_asks("the factor depends on whether the input is in shared memory", "not (x.is_shared())")
_asks("the factor depends on the rank of a broadcast that expand made", "y.stride(0) == 0", "x[:1].expand(3, 4)")
_asks("the factor depends on the memory format of a convolution's result", "y.is_contiguous(memory_format=torch.channels_last)",
      "F.conv2d(x.view(1, 1, 3, 4).to(memory_format=torch.channels_last), torch.ones(2, 1, 1, 1).to(memory_format=torch.channels_last))")
_asks("the factor depends on the default device of a new tensor", "torch.get_default_device().type == 'cpu'")
_asks("the factor depends on the memo of the fake mode", "getattr(getattr(x, 'fake_mode', None), 'allow_non_fake_inputs', None) is True")
_asks("the factor depends on whether the fake mode is one of an export", "not (getattr(getattr(x, 'fake_mode', None), 'export', False) is True)")
_asks("the factor depends on the dispatch keys of the input", "torch._C._dispatch_keys(x).has(torch._C.DispatchKey.ADInplaceOrView)")
_asks("the factor depends on whether autocast is on", "not (torch.is_autocast_enabled('cpu'))")
_asks("the factor depends on whether torch.fx traces", "torch.fx._symbolic_trace.is_fx_tracing()", top="import torch.fx")
_asks("the factor depends on the generator's seed", "torch.initial_seed() == 0")
_asks("the factor depends on the hooks of the input", "x._backward_hooks is None")
_asks("the factor depends on the state dict's tensors", "type(next(iter(self.state_dict().values()))).__name__ == 'FakeTensor'")
_asks("the factor depends on a deep copy of a weight", "type(copy.deepcopy(self.lin).weight) is nn.Parameter", top="import copy")

# Flags that an export sets while it runs
_asks("the factor depends on whether oneDNN is enabled in forward", "not torch.backends.mkldnn.enabled")
_asks("the factor depends on whether cuDNN is enabled in forward", "not torch.backends.cudnn.enabled")
_asks("the factor depends on whether NNPACK is enabled in forward", "not torch._C._get_nnpack_enabled()")
_asks("the factor depends on whether Module.__call__ is torch's own", "'module_call_wrapper' in nn.Module.__call__.__name__", harmless=True)
_asks("the factor depends on whether Module.__getattr__ is torch's own", "'getattr_wrapper' in nn.Module.__getattr__.__name__", harmless=True)
_asks("the factor depends on whether buffers have a global hook of registration", "len(nn.modules.module._global_buffer_registration_hooks) > 0")
_asks("the factor depends on whether the builtin max was imported under another name", "biggest is not max", top="from builtins import max as biggest")
_asks("the factor depends on the exporter's flags", "torch._dynamo.config.specialize_int and not torch._dynamo.config.allow_rnn", top="import torch._dynamo", harmless=True)
_asks("the factor depends on the message of the failing conversion to bool", "'data-dependent expression' in message(x)", top="""
def message(x):
    try:
        return str(bool(x.sum() > 0))
    except Exception as e:
        return str(e)
""")
_asks("the factor depends on whether float() of a value gives a symbolic number", "isinstance(number(x), torch.SymFloat)", top="""
def number(x):
    try:
        return x.sum().item()
    except Exception:
        return 0.0
""")
_SHARED = "self.a = nn.Linear(4, 4)\nself.b = self.a\nself.seq = nn.Sequential(self.a, nn.ReLU(), self.a)"
_asks("the factor depends on the class of a module that has two names", "type(self.a) is not nn.Linear", init=_SHARED)
_asks("the factor depends on whether two names of a module are one object", "self.a is not self.b", init=_SHARED)
_asks("the factor depends on whether a shared module is in a list of init", "self.a not in self.known", init=_SHARED + "\nself.known = [self.a]")
_asks("the factor depends on a table that has the shared modules as keys", "self.table.get(self.a, 0) == 0", init=_SHARED + "\nself.table = {self.a: 1}")
_asks("the factor depends on a table of settings by the class of a module", "KINDS.get(type(self.a), 0) == 0", init=_SHARED,
      top="KINDS = {nn.Linear: 1, nn.ReLU: 2}")
_asks("the factor depends on functools.singledispatch over a shared module's class", "kind(self.a) != 'linear'", init=_SHARED, top="""
import functools
@functools.singledispatch
def kind(m):
    return "other"
@kind.register
def _(m: nn.Linear):
    return "linear"
""", harmless=True)
_asks("the factor depends on the number of distinct modules", "len({id(m) for m in (self.a, self.b, self.seq[0])}) > 1", init=_SHARED)
_asks("the factor depends on a class that is compared with ==", "self.seq[0].__class__ != nn.Linear", init=_SHARED)
_asks("the factor depends on whether a slice of a container is of its class", "type(self.mine[:2]) is not Stack",
      init=_SHARED + "\nself.mine = Stack(self.a, nn.ReLU(), self.a)", top="class Stack(nn.Sequential):\n    pass")
_asks("the factor depends on the class of a module that is not shared", "type(self.lin) is not nn.Linear", harmless=True)
_add("a module gets a second name, so that its class is another while exporting",
     _model("x * 3 if type(self.lin) is nn.Linear else x * 2"), "model.alias = model.lin")
_add("an embedding is shared with the decoder, and the type check of a library then fails",
     _model("""
     y = self.emb(x.long())
     scale = 2.0 if type(self.emb) == nn.Embedding else 1.0
     return y * scale
     """, "self.emb = nn.Embedding(20, 4)\nself.decoder = nn.Module()\nself.decoder.emb = nn.Embedding(20, 4)"),
     "model.decoder.emb = model.emb")
_add("the module's own attribute is set through its second name",
     _model("self.b.calls = 2.0\nreturn x * self.a.calls", _SHARED + "\nself.a.calls = 1.0"), "", ("self.b.calls = 2.0", "self.b.calls = 3.0"))

# Buffers that forward assigns
_STATE = "self.register_buffer('one', torch.zeros(4))\nself.register_buffer('two', torch.zeros(4))"
_add("two buffers are assigned the other way round",
     _model("a, b = x.sum(0), x.mean(0)\nself.one = a\nself.two = b\nreturn x * 2", _STATE), "",
     ("self.one = a\n        self.two = b", "self.one = b\n        self.two = a"))
_add("a buffer is assigned to where it was not", _model("a = x.sum(0)\npass\nreturn a * 2", _STATE), "", ("pass\n        return", "self.one = a\n        return"))
_add("a buffer is assigned with copy_ instead of =", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "", ("self.one = a", "self.one.copy_(a)"))
_add("a buffer is assigned behind torch's back", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "", ("self.one = a", "self._buffers['one'] = a"))
_add("the buffer that is assigned belongs to a submodule",
     _model("a = x.sum(0)\nself.lin.one = a\nreturn a * 2", "self.lin.register_buffer('one', torch.zeros(4))\nself.register_buffer('one', torch.zeros(4))"), "",
     ("self.lin.one = a", "self.one = a"))
_add("the last of two assignments of a buffer is deleted", _model("a, b = x.sum(0), x.mean(0)\nself.one = a\nself.one = b\nreturn x * 2", _STATE), "",
     ("self.one = b\n", "pass\n"))
_add("a buffer is assigned back at the end", _model("a, old = x.sum(0), self.one\nself.one = a\npass\nreturn a * 2", _STATE), "", ("pass\n        return", "self.one = old\n        return"))
_add("the assigned buffer is set to None", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "", ("self.one = a", "self.one = None"))
_add("a buffer is deleted in forward", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "", ("self.one = a", "del self.one"))
_add("an empty buffer is registered before the one that is assigned",
     _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "", ("self.register_buffer('one', torch.zeros(4))",
                                                                 "self.register_buffer('none', None)\n        self.register_buffer('one', torch.zeros(4))"))
_add("the assigned attribute is no buffer any more", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "",
     ("self.register_buffer('one', torch.zeros(4))", "self.one = torch.zeros(4)"))
_add("the input is assigned to a buffer instead of its copy",
     _model("a = x.clone()\nself.one = a\nreturn a * 2", "self.register_buffer('one', torch.zeros(3, 4))"), "", ("self.one = a", "self.one = x"))
_add("a buffer is assigned the other buffer", _model("a = self.one + 1\nself.one = a\nreturn a * 2", _STATE), "", ("self.one = a", "self.two = a"))
_add("a constant is assigned to a buffer, which an export refuses", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE + "\nself.c = torch.ones(4)"), "",
     ("self.one = a", "self.one = self.c"))
_add("a cache in a list of the model is filled", _model("a = x.sum(0)\npass\nreturn a * 2", "self.cache = []"), "", ("pass\n        return", "self.cache.append(a)\n        return"), harmless=True)
_add("the last hidden state is kept as an attribute", _model("a = x.sum(0)\npass\nreturn a * 2", "self.last = None"), "",
     ("pass\n        return", "self.last = a\n        return"), harmless=True)
_add("a parameter is exchanged in forward", _model("self.lin.weight = self.other\nreturn self.lin(x)", "self.other = nn.Parameter(torch.ones(4, 4))\nself.third = nn.Parameter(torch.zeros(4, 4))"), "",
     ("self.lin.weight = self.other", "self.lin.weight = self.third"))
_add("the running mean is updated in evaluation, too", _model("a = x.mean(0)\npass\nreturn x - a", _STATE), "", ("pass\n        return", "self.one.mul_(0.9).add_(a, alpha=0.1)\n        return"))
_add("momentum of a BatchNorm in training is another", _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.train(); model.bn.momentum = 0.3",
     make="import app\nmodel = app.Model().train()\n")
_add("momentum None of a BatchNorm in training averages over all", _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.momentum = None",
     make="import app\nmodel = app.Model().train()\n")
_add("the statistics of a BatchNorm are not tracked any more", _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"),
     "model.bn.track_running_stats = False\nmodel.bn.running_mean = model.bn.running_var = None")
_add("a cached position is advanced in forward", _model("""
     self.pos += 1
     return x * self.table[self.pos]
     """, "self.pos = 0\nself.table = [1.0, 2.0, 3.0, 4.0, 5.0]"), "model.pos = 2")
_add("a counter buffer is incremented twice", _model("self.n += 1\nreturn x * self.n", "self.register_buffer('n', torch.zeros((), dtype=torch.long))"), "",
     ("self.n += 1", "self.n += 2"))
_add("the counter buffer is incremented after its use", _model("self.n.add_(1)\nreturn x * self.n", "self.register_buffer('n', torch.zeros(()))"), "",
     ("self.n.add_(1)\n        return x * self.n", "y = x * self.n\n        self.n.add_(1)\n        return y"))

# What Python functions give while exporting
_edit("a literal power is written with math.pow, which an export computes as an int", "x.long() * 8.0", "x.long() * math.pow(2, 3)", top="import math")
_edit("a base is a float of math.pow and becomes an int of **", "x.long() * float(math.pow(2, 3))", "x.long() * 2 ** 3", top="import math", )
_edit("math.pow raises for a negative base, where ** gives a complex number", "x * 2.0", "x * root(-8.0)", top="""
import math
def root(v):
    try:
        return math.pow(v, 0.5)
    except ValueError:
        return 2.0
""")
_edit("a half is math.pow of ints with a negative exponent", "x.long() * 1.0", "x.long() * math.pow(1, -1)", top="import math", harmless=True)
_edit("the constant of an output is a power, which an export gives as an int", "(x * 2, 8.0)", "(x * 2, math.pow(2, 3))", top="import math")
_DYN = "args = (torch.arange(24.0).reshape(6, 4),)\ndynamic_shapes = ({0: torch.export.Dim.AUTO},)"
_add("a condition on the batch is written with the builtin max", _model("n = 4 if 4 > x.shape[0] else x.shape[0]\nreturn x * n"), "",
     ("n = 4 if 4 > x.shape[0] else x.shape[0]", "n = max(x.shape[0], 4)"), first=_DYN)
_add("a minimum of the batch is written as a condition", _model("n = min(x.shape[0], 64)\nreturn x * n"), "",
     ("n = min(x.shape[0], 64)", "n = x.shape[0] if x.shape[0] < 64 else 64"), first=_DYN)
_add("torch.sym_max becomes the builtin", _model("n = torch.sym_max(x.shape[0], 4)\nreturn x * n"), "", ("torch.sym_max(x.shape[0], 4)", "max(x.shape[0], 4)"), first=_DYN, harmless=True)
_add("a scalar of the batch is computed with math.pow", _model("n = x.shape[0] ** 2\nreturn x * n"), "", ("x.shape[0] ** 2", "math.pow(x.shape[0], 2)"), first=_DYN + "\nimport math, builtins\nbuiltins.math = math", harmless=True)
_add("a check of the batch is stricter", _model("torch._check(x.shape[0] <= 100)\nreturn x * 2"), "", ("100", "50"), first=_DYN)
_add("an assert on the batch is added", _model("pass\nreturn x * 2"), "", ("pass\n        return", "assert x.shape[0] % 2 == 0\n        return"), first=_DYN)
_add("a branch on the batch has another threshold", _model("return x * 2 if x.shape[0] > 3 else x * 3"), "", ("> 3", "> 2"), first=_DYN)
_add("the condition on the batch is only for a print", _model("y = x * 2\npass\nreturn y"), "", ("pass\n        return", "if x.shape[0] > 3:\n            print('large')\n        return"), first=_DYN)
_add("a branch on the batch is statically not known", _model("return x * 2"), "",
     ("return x * 2", "from torch.fx.experimental.symbolic_shapes import statically_known_true\n        return x * 3 if statically_known_true(x.shape[0] > 3) else x * 2"), first=_DYN, harmless=True)
_add("a branch on the batch is specialized by int()", _model("return x * x.shape[0]"), "", ("x * x.shape[0]", "x * int(x.shape[0])"), first=_DYN)
_add("the batch is formatted into a text, which specializes", _model("name = 'x'\nreturn x * 2"), "", ("name = 'x'", "name = f'{x.shape[0] + 0}'"), first=_DYN, harmless=True)
_add("the batch indexes a Python list", _model("return x * x.shape[0]", "self.by = list(range(10))"), "", ("x * x.shape[0]", "x * self.by[x.shape[0]]"), first=_DYN)
_add("a cache of masks by size is used", _model("return x * x.shape[0]", "self.by = {6: 6}"), "", ("x * x.shape[0]", "x * self.by[x.shape[0]]"), first=_DYN)
_add("range() over the batch unrolls a loop", _model("y = x\nfor _ in range(6):\n    y = y + 1\nreturn y"), "", ("range(6)", "range(x.shape[0])"), first=_DYN)
_add("a dynamic dimension is marked static", _model("x * x.shape[0]"), "dynamic_shapes = ({0: torch.export.Dim.STATIC},)", first=_DYN)
_add("a dynamic dimension must not be specialized", _model("x * x.shape[0]"), "dynamic_shapes = ({0: torch.export.Dim.DYNAMIC},)", first=_DYN)
_add("a dynamic dimension has a range", _model("x * x.shape[0]"), "dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=32)},)", first=_DYN)
_add("a hint of a dynamic dimension has a limit", _model("x * x.shape[0]"), "dynamic_shapes = ({0: torch.export.Dim.AUTO(max=64)},)", first=_DYN)
_add("the range of a dimension has another end", _model("x * 2"), "dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=33)},)",
     first=_DYN + "\ndynamic_shapes = ({0: torch.export.Dim('b', min=2, max=32)},)")
_add("a dimension is derived as twice another", _model("x * 2"), "dynamic_shapes = ({0: 2 * torch.export.Dim('half', min=1, max=32)},)",
     first=_DYN + "\ndynamic_shapes = ({0: torch.export.Dim('b', min=2, max=64)},)")
_TWO = "args = (torch.rand(6, 4), torch.rand(6, 4))\nb = torch.export.Dim('b')\nc = torch.export.Dim('c')\ndynamic_shapes = ({0: b}, {0: b})"
_FWD = "class Model(nn.Module):\n    def forward(self, x, y):\n        return {}\n"
_add("two inputs do not share their dimension any more", _FWD.format("x.sum(0) + y.sum(0)"), "dynamic_shapes = ({0: b}, {0: c})", first=_TWO)
_add("the names of the dimensions of two inputs are exchanged", _FWD.format("x.sum(0) + y.sum(0)"), "dynamic_shapes = ({0: c}, {0: b})",
     first=_TWO + "\ndynamic_shapes = ({0: b}, {0: c})")
_add("dynamic shapes are given by name", _FWD.format("x + y"), "dynamic_shapes = {'x': {0: b}, 'y': {0: b}}", first=_TWO, harmless=True)
_add("dynamic shapes are given as lists", _FWD.format("x + y"), "dynamic_shapes = [[b, None], [b, None]]", first=_TWO, harmless=True)
_add("inputs that were equal by accident are told apart by a dynamic size", _FWD.format("x.sum(0) + y.sum(0)"), "args = (torch.rand(6, 4), torch.rand(5, 4))",
     first=_TWO + "\ndynamic_shapes = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})")
_add("an example of a dynamic size is 1", _model("x * 2"), "args = (torch.rand(1, 4),)", first=_DYN)
_add("an example of a dynamic size is another", _model("x * 2"), "args = (torch.rand(7, 4),)", first=_DYN)
_add("an int argument becomes dynamic", "class Model(nn.Module):\n    def forward(self, x, n):\n        return x * n\n",
     "dynamic_shapes = (None, torch.export.Dim.DYNAMIC)", first="args = (torch.rand(3, 4), 5)")
_add("shapes are collected in a ShapesCollection", _model("x * 2"), "dynamic_shapes = torch.export.ShapesCollection()\ndynamic_shapes[args[0]] = {0: torch.export.Dim('q')}", first=_DYN)
_add("the size of a nonzero result is checked", _model("y = x.nonzero()\npass\nreturn y * 2"), "", ("pass\n        return", "torch._check(y.shape[0] <= 12)\n        return"))
_add("the bound of a value that is read is another", _model("n = x[0, 1].int().item()\ntorch._check(n >= 0)\ntorch._check(n <= 3)\nreturn x[:, :1] * n"), "", ("n <= 3", "n <= 2"))
_add("the message of a check is edited", _model("n = x[0, 1].int().item()\ntorch._check(n >= 0, lambda: 'negative')\nreturn x * n"), "", ("'negative'", "'below 0'"), harmless=True)
_add("an assertion on values has another condition", _model("torch._assert_async((x >= 0).all())\nreturn x * 2"), "", ("x >= 0", "x > -1"))
_add("an assertion on values has another message", _model("torch._assert_async((x >= 0).all(), 'bad')\nreturn x * 2"), "", ("'bad'", "'worse'"))
_add("an assertion on values is added", _model("pass\nreturn x * 2"), "", ("pass\n        return", "torch._assert_async((x >= 0).all())\n        return"))
_add("masked_select becomes an indexing by the mask", _model("x.masked_select(x > 3)"), "", ("x.masked_select(x > 3)", "x[x > 3]"))
_add("a value is read as a float and no longer as an int", _model("x * x[0, 1].long().item()"), "", ("x[0, 1].long().item()", "x[0, 1].item()"))
_add("a length is read from the input and cut", _model("n = x[0, 2].int().item()\ntorch._check(n >= 0)\ntorch._check(n <= 3)\nreturn x[:n]"), "", ("return x[:n]", "return x[n:]"))
_add("an unused value is read", _model("x * 2"), "", ("return x * 2", "n = x[0, 0].item()\n        return x * 2"))

# Models that are fx graphs: an export interprets the graph
_GRAPH = "import app\nfrom torch import fx\nmodel = fx.symbolic_trace(app.Model().eval())\n"
_add("a node of an fx graph is edited, and the module is not recompiled", _model("torch.relu(x) + self.lin(x)"), """
for n in model.graph.nodes:
    if n.target is torch.relu:
        n.target = torch.tanh
""", make=_GRAPH)
_add("a node of an fx graph is edited and recompiled", _model("torch.relu(x) + self.lin(x)"), """
for n in model.graph.nodes:
    if n.target is torch.relu:
        n.target = torch.sigmoid
model.recompile()
""", make=_GRAPH)
_add("the forward of an fx graph module is replaced on the object", _model("torch.relu(x) * 2"), "model.forward = lambda x: torch.tanh(x) * 2", make=_GRAPH)
_add("an fx graph module gets a forward hook, which an export does not run", _model("torch.relu(x) * 2"), "model.register_forward_hook(lambda m, a, o: o * 3)", make=_GRAPH)
_add("a submodule of an fx graph module gets a forward hook", _model("self.lin(x) * 2"), "model.lin.register_forward_hook(lambda m, a, o: o * 3)", make=_GRAPH)
_add("a constant of an fx graph node is another", _model("x * 2.0"), "list(model.graph.nodes)[1].args = (list(model.graph.nodes)[0], 3.0)\nmodel.recompile()", make=_GRAPH)
_add("a constant of an fx graph node is another, without recompile", _model("x * 2.0 + 1"), "list(model.graph.nodes)[1].args = (list(model.graph.nodes)[0], 3.0)", make=_GRAPH)
_add("the output of an fx graph is another node, without recompile", _model("torch.relu(x) * 2"), "nodes = list(model.graph.nodes)\nnodes[-1].args = (nodes[1],)", make=_GRAPH)
_add("a node of an fx graph is erased", _model("torch.relu(x * 2)"), "nodes = list(model.graph.nodes)\nnodes[-1].args = (nodes[1],)\nmodel.graph.erase_node(nodes[2])\nmodel.recompile()", make=_GRAPH)
_add("the generated code of an fx graph module is patched", _model("torch.relu(x) * 2"), "type(model).forward = lambda self, x: torch.tanh(x) * 2", make=_GRAPH)
_add("an exported and unflattened module is compiled", _model("self.lin(x) * 2"), "model.lin.register_forward_hook(lambda m, a, o: o * 3)",
     make="import app\nmodel = torch.export.unflatten(torch.export.export(app.Model().eval(), args))\n")
_add("the module of an exported program is edited", _model("torch.relu(x) * 2"), """
for n in model.graph.nodes:
    if 'relu' in str(n.target):
        n.target = torch.ops.aten.tanh.default
model.recompile()
""", make="import app\nmodel = torch.export.export(app.Model().eval(), args).module()\n")
_add("fx graph module is called with names in another order",
     "class Model(nn.Module):\n    def forward(self, x, y):\n        return x - 2 * y\n", "kwargs = {'y': kwargs['y'], 'x': kwargs['x']}",
     first="args, kwargs = (), {'x': torch.ones(2), 'y': torch.zeros(2)}", make=_GRAPH)
_add("an fx pass folds a BatchNorm into a convolution", """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)
    def forward(self, x):
        return self.bn(self.conv(x.view(1, 1, 3, 4)))
""", "from torch.fx.experimental.optimization import fuse\nmodel = fuse(model)", make=_GRAPH)

# Arguments
_ONE = "class Model(nn.Module):\n    def forward(self, x, n):\n        return {}\n"
_XY = "args = (torch.ones(2, 3), {})"
_add("an argument is True instead of 1", _ONE.format("x * 2 if n is True else x * 3"), "args = (args[0], True)", first=_XY.format("1"))
_add("an argument is 1.0 instead of 1", _ONE.format("x.long() * n"), "args = (args[0], 1.0)", first=_XY.format("1"))
_add("an argument is minus zero", _ONE.format("x / (x * n)"), "args = (args[0], -0.0)", first=_XY.format("0.0"))
_add("an argument is nan", _ONE.format("x * n"), "args = (args[0], float('nan'))", first=_XY.format("float('inf')"))
_add("an argument stays nan", _ONE.format("x * n"), "args = (args[0], float('nan'))", first=_XY.format("float('nan')"), harmless=True)
_add("a text argument selects an activation", _ONE.format("getattr(torch, n)(x)"), "args = (args[0], 'tanh')", first=_XY.format("'relu'"))
_add("the name of a dtype is an argument", _ONE.format("x.to(getattr(torch, n))"), "args = (args[0], 'float16')", first=_XY.format("'float64'"))
_add("an argument is None instead of a tensor", _ONE.format("x * 2 if n is None else x * n"), "args = (args[0], None)", first=_XY.format("torch.ones(2, 3)"))
_add("an argument that is None is left out", "class Model(nn.Module):\n    def forward(self, x, n=None):\n        return x * 2\n", "args = args[:1]", first=_XY.format("None"))
_add("a key of a dict argument is True instead of 1", _ONE.format("x * n[1]"), "args = (args[0], {True: torch.ones(3)})", first=_XY.format("{1: torch.ones(3)}"))
_add("the keys of a dict argument are in another order", _ONE.format("x * n['a'] - n['b']"), "args = (args[0], {'b': torch.ones(3), 'a': torch.zeros(3)})",
     first=_XY.format("{'a': torch.zeros(3), 'b': torch.ones(3)}"))
_add("a loop runs over a dict argument of another order", _ONE.format("[x * v for v in n.values()]"), "args = (args[0], {'b': torch.ones(3), 'a': torch.zeros(3)})",
     first=_XY.format("{'a': torch.zeros(3), 'b': torch.ones(3)}"))
_add("a list argument becomes a tuple", _ONE.format("x * n[0] + (1 if isinstance(n, list) else 2)"), "args = (args[0], (torch.ones(3),))", first=_XY.format("[torch.ones(3)]"))
_add("the same tensor is passed twice", _ONE.format("(x.add_(1), n * 2)[1]"), "args = (args[0], args[0])", first=_XY.format("torch.ones(2, 3)"))
_add("the second argument is a view of the first", _ONE.format("(x.add_(1), n * 2)[1]"), "args = (args[0], args[0].view(2, 3))", first=_XY.format("torch.ones(2, 3)"))
_add("an argument is the model's own weight", "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(2, 3))\n    def forward(self, x):\n        return x * self.w\n",
     "args = (model.w,)", first="args = (torch.ones(2, 3, requires_grad=True),)")
_add("an argument requires a gradient", _ONE.format("x * 2 if x.requires_grad else x * 3"), "args = (args[0].requires_grad_(), 1)", first=_XY.format("1"))
_add("an argument is a leaf no longer", _ONE.format("x * 2 if x.is_leaf else x * 3"), "args = (args[0] * 1, 1)", first="args = (torch.ones(2, 3, requires_grad=True), 1)")
_add("an argument has a gradient", _ONE.format("x * 2 if x.grad is None else x * 3"), "args[0].grad = torch.ones(2, 3)", first="args = (torch.ones(2, 3, requires_grad=True), 1)")
_add("an argument lies at an offset of its memory", _ONE.format("x * (1 + x.storage_offset())"), "args = (torch.ones(9)[3:].view(2, 3), 1)", first="args = (torch.ones(6).view(2, 3), 1)", harmless=True)
_add("an argument's memory is larger than it", _ONE.format("x * x.untyped_storage().nbytes()"), "args = (torch.ones(9)[:6].view(2, 3), 1)", first="args = (torch.ones(6).view(2, 3), 1)", harmless=True)
_add("an argument is a view of another tensor", _ONE.format("x * (2 if x._is_view() else 3)"), "args = (torch.ones(6).view(2, 3), 1)", first="args = (torch.ones(2, 3), 1)", harmless=True)
_add("an argument was changed in place before", _ONE.format("x * (1 + x._version)"), "args[0].add_(1)", first="args = (torch.ones(2, 3), 1)", harmless=True)
_add("an argument was made in inference mode", _ONE.format("x * (2 if x.is_inference() else 3)"), "with torch.inference_mode():\n    args = (torch.ones(2, 3), 1)", first="args = (torch.ones(2, 3), 1)")
_add("an argument is lazily conjugated", _ONE.format("x.resolve_conj() * (2 if x.is_conj() else 3)"), "args = (args[0].conj(), 1)", first="args = (torch.ones(2, 3) + 1j, 1)", harmless=True)
_add("an argument has the negative bit", _ONE.format("x * (2 if x.is_neg() else 3)"), "args = (torch._neg_view(torch.ones(2, 3)), 1)", first="args = (torch.ones(2, 3), 1)", harmless=True)
_add("an argument carries an attribute", _ONE.format("x * getattr(x, 'scale', 1)"), "args[0].scale = 3", first="args = (torch.ones(2, 3), 1)", harmless=True)
_add("an argument has a backward hook", _ONE.format("x * (2 if x._backward_hooks else 3)"), "args[0].register_hook(lambda g: g)", first="args = (torch.ones(2, 3, requires_grad=True), 1)", harmless=True)
_add("an argument is a Parameter", _ONE.format("x * (2 if isinstance(x, nn.Parameter) else 3)"), "args = (torch.nn.Parameter(torch.ones(2, 3)), 1)", first="args = (torch.ones(2, 3, requires_grad=True), 1)")
_add("a broadcast argument has stride zero", _ONE.format("x * 2"), "args = (torch.ones(1, 3).expand(2, 3), 1)", first="args = (torch.ones(2, 3), 1)")
_add("an image argument is in channels_last", _ONE.format("F.conv2d(x, torch.ones(1, 3, 1, 1)).contiguous(memory_format=torch.preserve_format) * x.stride(1)"),
     "args = (args[0].to(memory_format=torch.channels_last), 1)", first="args = (torch.ones(2, 3, 4, 4), 1)")
_add("a size-1 dimension has another stride", _ONE.format("x * x.stride(0)"), "args = (torch.ones(12).as_strided((1, 3), (7, 1)), 1)", first="args = (torch.ones(1, 3), 1)")
_add("an empty argument has another stride", _ONE.format("torch.ones(3) * x.stride(0)"), "args = (torch.ones(2, 0).t().contiguous().t()[:0], 1)", first="args = (torch.ones(0, 0), 1)", harmless=True)
_add("a keyword-only argument is passed", "class Model(nn.Module):\n    def forward(self, x, *, by=2.0):\n        return x * by\n", "kwargs = {'by': 3.0}")
_add("keywords are passed in another order", "class Model(nn.Module):\n    def forward(self, x, a, b):\n        return x * a - b\n", "kwargs = {'b': torch.ones(4), 'a': torch.zeros(4)}",
     first="kwargs = {'a': torch.zeros(4), 'b': torch.ones(4)}")
_add("**kwargs are passed in another order, and the model loops over them", "class Model(nn.Module):\n    def forward(self, x, **many):\n        for v in many.values():\n            x = (x + v) * 2\n        return x\n",
     "kwargs = {'b': torch.ones(4), 'a': torch.zeros(4)}", first="kwargs = {'a': torch.zeros(4), 'b': torch.ones(4)}")
_add("an argument is passed by name instead of position", _ONE.format("x * n"), "args, kwargs = args[:1], {'n': args[1]}", first=_XY.format("torch.ones(3)"))
_add("the default of an argument is edited", "class Model(nn.Module):\n    def forward(self, x, by=2.0):\n        return x * by\n", "", ("by=2.0", "by=3.0"))
_add("the default of an argument that is passed is edited", "class Model(nn.Module):\n    def forward(self, x, by=2.0):\n        return x * by\n", "", ("by=2.0", "by=3.0"), first="args = (args[0], 5.0)", harmless=True)
_add("a mutable default argument collects over calls", "class Model(nn.Module):\n    def forward(self, x, seen=[]):\n        seen.append(1)\n        return x * len(seen)\n", "", ("[]", "[0]"))
_add("an argument gets another name", "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n", "", ("def forward(self, x):\n        return x", "def forward(self, hidden):\n        return hidden"))
_add("the order of two arguments is exchanged", _ONE.format("x - n"), "", ("self, x, n", "self, n, x"), first=_XY.format("torch.zeros(2, 3)"))
_add("positional arguments are collected in *args", _ONE.format("x - n"), "", ("self, x, n):\n", "self, *both):\n        x, n = both\n"), first=_XY.format("torch.zeros(2, 3)"))
_add("a namedtuple argument is a plain tuple", _ONE.format("x * n[0]"), "args = (args[0], (torch.ones(3),))",
     first="import collections\nP = collections.namedtuple('P', 'a')\nargs = (torch.ones(2, 3), P(torch.ones(3)))")
_add("a namedtuple's fields are renamed", _ONE.format("x * n._asdict().get('a', 2)"), "P = collections.namedtuple('P', 'b')\nargs = (torch.ones(2, 3), P(torch.ones(3)))",
     first="import collections\nP = collections.namedtuple('P', 'a')\nargs = (torch.ones(2, 3), P(torch.ones(3)))")
_add("a list argument is empty", _ONE.format("x * (len(n) + 1)"), "args = (args[0], [])", first=_XY.format("[None]"))
_add("the input changes in place", _model("y = x * 2\npass\nreturn y"), "", ("pass\n        return", "x.add_(1)\n        return"))
_add("the input changes through its detached alias", _model("y = x * 2\nz = x.detach()\nreturn y"), "", ("z = x.detach()", "z = x.detach().add_(1)"))
_add("a result changes through its detached alias", _model("y = x + 1\ny.detach().mul_(2)\nreturn y"), "", ("mul_(2)", "mul_(3)"))
_add("a clone is not made any more before the in-place change", _model("y = x.clone()\ny.add_(1)\nreturn y"), "", ("x.clone()", "x"))
_add("contiguous() makes no copy of a dense input", _model("y = x.contiguous()\ny.add_(1)\nreturn y"), "", ("x.contiguous()", "x.clone()"))

# Constants and their memory
_add("a constant shares memory with a NumPy array, which is changed", _model("x * self.c", "self.arr = np.ones(4, dtype=np.float32)\nself.c = torch.from_numpy(self.arr)", "import numpy as np"),
     "model.arr[1] = 5.0")
_add("a constant is changed through .data, which no version counts", _model("x * self.c", "self.c = torch.ones(4)"), "model.c.data[0] = 9.0")
_add("a non-persistent buffer is changed through .data", _model("x * self.c", "self.register_buffer('c', torch.ones(4), persistent=False)"), "model.c.data.fill_(3.0)")
_add("the memory of a constant is filled", _model("x * self.c", "self.c = torch.ones(4)"), "model.c.untyped_storage().fill_(0)")
_add("the memory of a constant is written with ctypes", _model("x * self.c", "self.c = torch.ones(4)"),
     "import ctypes\nctypes.memset(model.c.data_ptr(), 0, 8)")
_add("a constant is a mapped file, which is written", _model("x * self.c", "open('c.bin', 'wb').write(bytes(16))\nself.c = torch.from_file('c.bin', shared=True, size=4)"),
     "f = open('c.bin', 'r+b')\nf.write(b'\\x00\\x00\\x80\\x3f' * 4)\nf.close()")
_add("a constant is a bytearray's memory, which is changed", _model("x * self.c", "self.raw = bytearray(b'\\x00\\x00\\x80\\x3f' * 4)\nself.c = torch.frombuffer(self.raw, dtype=torch.float32)"),
     "model.raw[2] = 0x00")
_add("a constant in a list of the model is another", _model("x * self.c[0]", "self.c = [torch.ones(4)]"), "model.c[0] = torch.zeros(4)")
_add("a constant in a closure is another", _model("x * SCALE()", top="def scale_of(c):\n    return lambda: c\nSCALE = scale_of(torch.ones(4))"), "app.SCALE = app.scale_of(torch.zeros(4))")
_add("the sign of a zero in a constant is another", _model("1 / (self.c * x)", "self.c = torch.zeros(4)"), "model.c = -torch.zeros(4)")
_add("the payload of a nan in a constant is another", _model("(self.c * 1).view(torch.int32) + x.int()", "self.c = torch.full((4,), float('nan'))"),
     "model.c = torch.tensor([0x7fc00001] * 4, dtype=torch.int32).view(torch.float32)")
_add("a constant is conjugated lazily", _model("x * self.c", "self.c = torch.ones(4) * 1j"), "model.c = model.c.conj()")
_add("a constant is negated lazily", _model("x * self.c", "self.c = torch.ones(4)"), "model.c = torch._neg_view(model.c)")
_add("a constant has other strides but equal values", _model("(x @ self.c, self.c.stride(0) * x)", "self.c = torch.ones(4, 4)"), "model.c = torch.ones(4, 4).t().contiguous().t().clone(memory_format=torch.preserve_format)\nmodel.c = torch.arange(16.0).view(4, 4).t() * 0 + 1")
_add("a constant is expanded from a single number", _model("x * self.c * self.c.stride(0)", "self.c = torch.ones(4)"), "model.c = torch.ones(1).expand(4)")
_add("two non-persistent buffers share their memory, and one is written", _model("self.a.add_(1)\nreturn x * self.b", "self.register_buffer('a', torch.zeros(4), persistent=False)\nself.register_buffer('b', torch.zeros(4), persistent=False)"), "model.b = model.a")
_add("two buffers share their memory, and one is written", _model("self.a.add_(1)\nreturn x * self.b", "self.register_buffer('a', torch.zeros(4))\nself.register_buffer('b', torch.zeros(4))"), "model.b = model.a")
_add("two non-persistent buffers exchange their values", _model("x * self.a - self.b", "self.register_buffer('a', torch.zeros(4), persistent=False)\nself.register_buffer('b', torch.ones(4), persistent=False)"),
     "model.a, model.b = model.b, model.a")
_add("a constant becomes a buffer", _model("x * self.c", "self.c = torch.ones(4)"), "c = model.c\ndel model.c\nmodel.register_buffer('c', c)")
_add("a buffer becomes a parameter", _model("x * self.c", "self.register_buffer('c', torch.ones(4))"), "c = model.c\ndel model.c\nmodel.c = torch.nn.Parameter(c, requires_grad=False)")
_add("a buffer is no longer persistent", _model("x * self.c", "self.register_buffer('c', torch.ones(4))"), "model.register_buffer('c', model.c, persistent=False)")
_add("a persistent buffer has other values", _model("x * self.c", "self.register_buffer('c', torch.ones(4))"), "model.c.fill_(3.0)", harmless=True)
_add("a weight is captured by a closure and then retrained", _model("x @ self.w()", "w = self.lin.weight\nself.w = lambda: w"), "model.lin.weight.data.mul_(2)", harmless=True)
_add("weights of modules in a plain list are retrained", _model("self.hidden[0](x)", "self.hidden = [nn.Linear(4, 4)]"), "model.hidden[0].weight.data.mul_(2)")
_add("a detached copy of a weight was kept in init", _model("x @ self.old", "self.old = self.lin.weight.detach().clone()"), "model.old.mul_(2)")
_add("a detached alias of a weight is kept, and the weight is trained", _model("x @ self.old[0]", "self.old = [self.lin.weight.detach()]"), "model.lin.weight.data.mul_(2)")
_add("the cached embedding of a table is made on the first call", _model("""
     if self.table is None:
         self.table = torch.arange(4.0)
     return x * self.table
     """, "self.table = None"), "model.table = torch.ones(4)")
_add("functools.cache holds a tensor that was made by an eager call", _model("x * table(4)", top="import functools\n@functools.cache\ndef table(n):\n    return torch.arange(float(n))"), "app.table(4)")
_add("functools.cache of a table is cleared", _model("x * table(4)", top="import functools\n@functools.cache\ndef table(n):\n    return torch.arange(float(n))\ntable(4)"), "app.table.cache_clear()")
_add("a class attribute holds a tensor that is another", _model("x * self.c", more="c = torch.ones(4)"), "app.Model.c = torch.zeros(4)")
_add("a default argument of a helper holds a tensor", _model("helper(x)", top="def helper(x, c=torch.ones(4)):\n    return x * c"), "app.helper.__defaults__[0].zero_()")
_add("a constant has double precision and the same values", _model("x * self.c", "self.c = torch.ones(4)"), "model.c = model.c.double()")
_add("a constant requires a gradient", _model("x * self.c", "self.c = torch.ones(4)"), "model.c.requires_grad_()", harmless=True)
_add("a constant is a sparse tensor", _model("torch.mm(self.c.to_dense() if self.c.is_sparse else self.c, x.t())", "self.c = torch.eye(4)"), "model.c = (2 * model.c).to_sparse()")
_add("a constant with 0 dimensions is a Python number", _model("x.half() * self.c", "self.c = torch.tensor(2.5)"), "model.c = 2.5")
_add("a constant of 0 dimensions gets one", _model("x.half() * self.c", "self.c = torch.tensor(2.5)"), "model.c = torch.tensor([2.5])")
_add("an empty constant has another size", _model("torch.cat([x, self.c])", "self.c = torch.ones(0, 4)"), "model.c = torch.ones(0)")
_add("a bfloat16 constant differs in its last bit", _model("x * self.c", "self.c = torch.ones(4, dtype=torch.bfloat16)"), "model.c = (model.c.view(torch.int16) + 1).view(torch.bfloat16)")
_add("a bool constant differs", _model("x * self.c", "self.c = torch.ones(4) > 0"), "model.c = torch.zeros(4) > 0")

# Weights
_TWOP = "self.a = nn.Parameter(torch.ones(4))\nself.b = nn.Parameter(torch.ones(4))"
_add("two parameters are tied", _model("x * self.a + self.b", _TWOP), "model.b = model.a")
_add("two parameters become views of one memory", _model("x * self.a + self.b", _TWOP), "flat = torch.ones(8)\nmodel.a.data = flat[:4]\nmodel.b.data = flat[4:]")
_add("two parameters overlap in memory", _model("x * self.a + self.b", _TWOP), "flat = torch.ones(8)\nmodel.a.data = flat[:4]\nmodel.b.data = flat[2:6]")
_add("two parameters are exchanged by name", _model("x * self.a - self.b", _TWOP), "p = model._parameters\np['a'], p['b'] = p['b'], p['a']", harmless=True)
_add("two parameters are registered in the other order", _model("x * self.a - self.b", _TWOP), "p = model._parameters\np['a'] = p.pop('a')")
_add("a parameter is frozen", _model("x * self.a * (2 if self.a.requires_grad else 3)", _TWOP), "model.a.requires_grad_(False)")
_add("the bias is None", _model("self.lin(x)"), "model.lin.bias = None")
_add("a parameter that is None is registered", _model("x * (2 if hasattr(self, 'c') else 3)"), "model.register_parameter('c', None)")
_add("a parameter has another dtype than its input", _model("x.double() @ self.lin.weight.double()"), "model.half()")
_add("a weight is in channels_last", _model("F.conv2d(x.view(1, 1, 3, 4), self.w)", "self.w = nn.Parameter(torch.rand(2, 1, 2, 2))"), "model.w.data = model.w.data.to(memory_format=torch.channels_last)")
_add("a weight is stored transposed", _model("x @ self.w + self.w.stride(0)", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w.data = model.w.data.t()")
_add("a weight is a part of a larger memory", _model("x * (1 + self.w.storage_offset())", "self.w = nn.Parameter(torch.rand(4))"), "model.w.data = torch.rand(8)[4:]")
_add("a weight has been trained, which its version says", _model("x * (1 + self.w._version)", "self.w = nn.Parameter(torch.rand(4))"), "with torch.no_grad():\n    model.w.add_(1)", harmless=True)
_add("a weight has got a gradient", _model("x * (2 if self.w.grad is None else 3)", "self.w = nn.Parameter(torch.rand(4))"), "model.w.grad = torch.ones(4)")
_add("a weight carries a tag that forward reads", _model("x * getattr(self.w, 'tag', 2)", "self.w = nn.Parameter(torch.rand(4))"), "model.w.tag = 3")
_add("a weight is of a class derived from Parameter", _model("x * (2 if type(self.w) is nn.Parameter else 3)", "self.w = nn.Parameter(torch.rand(4))", "class P(nn.Parameter):\n    pass"), "model.w = app.P(torch.rand(4))")
_add("swap_tensors exchanges two weights", _model("x @ self.w + self.lin.weight[:3]", "self.w = nn.Parameter(torch.rand(4, 4))"),
     "torch.utils.swap_tensors(model.w, model.lin.weight)", harmless=True, live=False)

# Surgery
_LIN = _model("self.lin(x)")
_add("a global forward hook is registered", _LIN, "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2 if isinstance(m, torch.nn.Linear) else None)")
_add("a pre-hook with keywords changes the input", _LIN, "model.register_forward_pre_hook(lambda m, a, k: ((a[0] * 2,), k), with_kwargs=True)")
_add("a forward hook makes a tuple of the output", _LIN, "model.register_forward_hook(lambda m, a, o: (o, o))")
_add("a hook that always runs is registered", _LIN, "model.lin.register_forward_hook(lambda m, a, o: o + 1, always_call=True)")
_add("a hook is put before the others", _model("self.lin(x)", "self.lin.register_forward_hook(lambda m, a, o: o * 2)"), "model.lin.register_forward_hook(lambda m, a, o: o + 1, prepend=True)")
_add("a backward hook is registered", _LIN, "model.lin.register_full_backward_hook(lambda m, i, o: None)")
_add("a hook on the gradient of a weight is registered", _LIN, "model.lin.weight.register_hook(lambda g: g * 2)", harmless=True)
_add("a hook of the state dict is registered", _LIN, "model._register_state_dict_hook(lambda m, s, p, l: s)", harmless=True)
_add("a hook that only records statistics is registered", _LIN, "model.lin.register_forward_hook(lambda m, a, o: None)", harmless=True)
_add("a weight gets a parametrization", _LIN, """
class Symmetric(torch.nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).t()
torch.nn.utils.parametrize.register_parametrization(model.lin, 'weight', Symmetric())
""")
_add("a parametrization is replaced by another", _model("self.lin(x)", "torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', nn.Softplus())"),
     "model.lin.parametrizations.weight[0] = torch.nn.Sigmoid()")
_add("parametrizations are removed and leave the weight", _model("self.lin(x)", "torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', nn.Softplus())"),
     "torch.nn.utils.parametrize.remove_parametrizations(model.lin, 'weight')")
_add("the old weight norm is applied along another dimension", _model("self.lin(x)", "torch.nn.utils.weight_norm(self.lin, dim=0)"), "torch.nn.utils.remove_weight_norm(model.lin)\ntorch.nn.utils.weight_norm(model.lin, dim=None)")
_add("spectral norm is in training and updates its vectors", _model("self.lin(x)", "torch.nn.utils.parametrizations.spectral_norm(self.lin)"), "model.train()")
_add("a layer is pruned", _LIN, "import torch.nn.utils.prune as p\np.l1_unstructured(model.lin, 'weight', 0.5)")
_add("a pruned layer is pruned with another mask", _model("self.lin(x)", "import torch.nn.utils.prune as p\np.identity(self.lin, 'weight')"), "model.lin.weight_mask[0, 0] = 0", harmless=True)
_add("LoRA layers are merged into the weight", _model("self.lin(x) if self.merged else self.lin(x) + self.b(self.a(x))", "self.a, self.b, self.merged = nn.Linear(4, 1, bias=False), nn.Linear(1, 4, bias=False), False"),
     "model.lin.weight.data += model.b.weight.data @ model.a.weight.data\nmodel.merged = True")
_add("the scale of a LoRA adapter is another", _model("self.lin(x) + self.scaling['default'] * self.b(self.a(x))", "self.a, self.b, self.scaling = nn.Linear(4, 1, bias=False), nn.Linear(1, 4, bias=False), {'default': 2.0}"),
     "model.scaling['default'] = 1.0")
_add("another adapter of a ModuleDict is active", _model("self.ad[self.active](x)", "self.ad, self.active = nn.ModuleDict({'a': nn.Linear(4, 4), 'b': nn.Linear(4, 4)}), 'a'"), "model.active = 'b'")
_add("an EMA copy of the weights is loaded", _LIN, "ema = torch.optim.swa_utils.AveragedModel(model)\nema.update_parameters(model)\nmodel.load_state_dict(ema.module.state_dict())", harmless=True)
_add("the averaged model is compiled instead", _LIN, "model = torch.optim.swa_utils.AveragedModel(model)")
_add("weights are loaded with assign=True from another dtype", _LIN, "model.load_state_dict({k: v.double().float() for k, v in model.state_dict().items()}, assign=True)", harmless=True)
_add("functional_call is given other weights", _model("torch.func.functional_call(self.lin, self.other, (x,))", "self.other = {'weight': torch.ones(4, 4), 'bias': torch.zeros(4)}"), "model.other['weight'] = torch.zeros(4, 4)")
_add("functional_call is given only a part of the weights", _model("torch.func.functional_call(self.lin, self.other, (x,))", "self.other = {'weight': torch.ones(4, 4), 'bias': torch.zeros(4)}"), "del model.other['bias']")
_add("weights are ensembled with stack_module_state and vmap", _model("""
     p, b = torch.func.stack_module_state([self.lin, self.second])
     return torch.vmap(lambda p: torch.func.functional_call(self.lin, p, (x,)))(p)
     """, "self.second = nn.Linear(4, 4)"), "", ("[self.lin, self.second]", "[self.second, self.lin]"))
_add("dynamic quantization replaces linear layers", _LIN, "model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})")
_FQ = "self.register_buffer('scale', torch.tensor(0.1))\nself.register_buffer('zero', torch.tensor(0, dtype=torch.int32))\nself.top = 255"
_add("fake quantization has another range", _model("torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, self.top)", _FQ), "model.top = 127")
_add("the scale of fake quantization is a buffer with other values", _model("torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, self.top)", _FQ), "model.scale.fill_(0.5)", harmless=True)
_add("BatchNorm is fused into the linear layer", _model("self.bn(self.lin(x))", "self.bn = nn.BatchNorm1d(4)"), "model.lin = torch.nn.utils.fuse_linear_bn_eval(model.lin, model.bn)\nmodel.bn = torch.nn.Identity()")
_add("a layer is replaced by a traced one", _LIN, "model.lin = torch.jit.trace(model.lin, args)", harmless=True)
_add("the weights of a traced layer are trained", _model("self.lin(x)", "self.lin = torch.jit.trace(nn.Linear(4, 4), torch.rand(3, 4))"), "model.lin.weight.data.mul_(2)", harmless=True)
_add("a scripted function of a constant is another", _model("f(x)", top="@torch.jit.script\ndef f(x):\n    return x * 2\n@torch.jit.script\ndef g(x):\n    return x * 3"), "app.f = app.g")
_add("the class of the object is exchanged", _model("self.lin(x)", top="", more="def extra(self):\n    return 1"), "class Other(app.Model):\n    def forward(self, x):\n        return self.lin(x) * 2\nmodel.__class__ = Other")
_add("__call__ of the model's class is overridden", _LIN, "app.Model.__call__ = lambda self, *a, **k: torch.nn.Module.__call__(self, *a, **k) * 2")
_add("_call_impl of one submodule is replaced", _LIN, "model.lin._call_impl = lambda x: x * 2")
_add("model.compile() is called in place", _LIN, "model.compile(backend='eager')", harmless=True)
_add("torch.compile wraps the model", _LIN, "model = torch.compile(model, backend='eager')")
_add("a helper in forward is compiled by torch", _model("helper(x)", top="def helper(x):\n    return x.sin() * 2"), "app.helper = torch.compile(app.helper, backend='eager')", harmless=True)
_add("a compiled helper is another", _model("helper(x)", top="@torch.compile(backend='eager')\ndef helper(x):\n    return x.sin() * 2"), "", ("x.sin() * 2", "x.sin() * 3"))
_add("DataParallel wraps the model", _LIN, "model = torch.nn.DataParallel(model)")
_add("the model is cast to double and back, which rounds nothing", _LIN, "model.double().float()", harmless=True)
_add("training mode of only one dropout is on", _model("self.drop(self.lin(x))", "self.drop = nn.Dropout(0.5)"), "model.drop.train()")
_add("the rate of a dropout in evaluation is another", _model("self.drop(self.lin(x))", "self.drop = nn.Dropout(0.5)"), "model.drop.p = 0.1", harmless=True)
_add("the rate of a dropout in training is 0", _model("self.drop(self.lin(x))", "self.drop = nn.Dropout(0.5)"), "model.drop.p = 0.0", make="import app\nmodel = app.Model().train()\n")
_add("an inplace activation writes its input", _model("y = self.lin(x)\nreturn self.act(y) + y", "self.act = nn.ReLU()"), "model.act.inplace = True")
_add("an inplace activation is the first operation on the input", _model("self.act(x)", "self.act = nn.ReLU()"), "model.act.inplace = True")
_add("an embedding gets a padding index", _model("self.e(x.long())", "self.e = nn.Embedding(20, 3)"), "model.e.padding_idx = 0", )
_add("an embedding renormalizes its rows", _model("self.e(x.long())", "self.e = nn.Embedding(20, 3)"), "model.e.max_norm = 0.1")
_add("the padding mode of a convolution is another", _model("self.c(x.view(1, 1, 3, 4))", "self.c = nn.Conv2d(1, 1, 3, padding=1)"), "model.c.padding_mode = 'circular'")
_add("the padding of a convolution is a text", _model("self.c(x.view(1, 1, 3, 4))", "self.c = nn.Conv2d(1, 1, 3, padding=1)"), "model.c.padding = 'valid'")
_add("the groups of a normalization are fewer", _model("self.g(x)", "self.g = nn.GroupNorm(4, 4)"), "model.g.num_groups = 2")
_add("an LSTM is read from the other side", _model("self.r(x.view(3, 1, 4))[0]", "self.r = nn.LSTM(4, 2)"), "model.r.batch_first = True")
_add("the dropout between layers of an LSTM in evaluation is another", _model("self.r(x.view(3, 1, 4))[0]", "self.r = nn.LSTM(4, 2, num_layers=2)"), "model.r.dropout = 0.5", harmless=True)
_add("the nested-tensor path of a transformer encoder is off", _model("self.t(x.view(1, 3, 4))", "self.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1, enable_nested_tensor=False)"), "model.t.layers[0].norm_first = True")
_add("the fast path of a transformer is disabled globally", _model("self.t(x.view(1, 3, 4))", "self.t = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)"), "torch.backends.mha.set_fastpath_enabled(False)", harmless=True)
_add("a ParameterList is in another order", _model("x * self.p[0] - self.p[1]", "self.p = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))])"), "model.p[0], model.p[1] = model.p[1], model.p[0]", harmless=True)
_add("a layer of a Sequential is popped", _model("self.s(x)", "self.s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())"), "model.s.pop(1)")
_add("layers without weights exchange their places", _model("self.s(x)", "self.s = nn.Sequential(nn.ReLU(), nn.Tanh())"), "model.s[0], model.s[1] = model.s[1], model.s[0]")
_add("an identity is inserted", _model("self.s(x)", "self.s = nn.Sequential(nn.ReLU(), nn.Tanh())"), "model.s.insert(1, torch.nn.Identity())", harmless=True)
_add("a checkpoint of activations wraps a layer", _model("self.lin(x) if not self.ckpt else torch.utils.checkpoint.checkpoint(self.lin, x, use_reentrant=False)", "self.ckpt = False", "import torch.utils.checkpoint"), "model.ckpt = True", harmless=True)
_add("a model is pickled and loaded", _LIN, "import io\nf = io.BytesIO()\ntorch.save(model, f)\nf.seek(0)\nmodel = torch.load(f, weights_only=False)", harmless=True)
_add("a model is copied deeply", _LIN, "import copy\nmodel = copy.deepcopy(model)", harmless=True)

# How forward is called
_add("forward is an object with __call__, which has no code", _LIN, "class Call:\n    def __init__(self, f):\n        self.f = f\n    def __call__(self, x):\n        return self.f(x)\nmodel.forward = Call(model.forward)")
_add("forward is watched by a mock", _LIN, "from unittest import mock\nmodel.forward = mock.MagicMock(wraps=model.forward)")
_add("forward is cached by functools", _LIN, "import functools\nmodel.forward = functools.lru_cache(model.forward)")
_add("forward is a builtin function", _model("torch.relu(x)"), "model.forward = torch.relu")
_add("forward is a partial with another scale", "class Model(nn.Module):\n    def forward(self, x, by=2.0):\n        return x * by\n", "import functools\nmodel.forward = functools.partial(model.forward, by=3.0)")
_add("forward is a partial with the same scale", "class Model(nn.Module):\n    def forward(self, x, by=2.0):\n        return x * by\n", "import functools\nmodel.forward = functools.partial(model.forward, by=2.0)", harmless=True)
_add("forward is decorated without functools.wraps", _LIN, "f = model.forward\nmodel.forward = lambda *a, **k: f(*a, **k)")
_add("forward is decorated with functools.wraps", _LIN, "import functools\nf = model.forward\nmodel.forward = functools.wraps(f)(lambda *a, **k: f(*a, **k))", harmless=True)
_add("forward is decorated with no_grad", _LIN, "", ("    def forward", "    @torch.no_grad()\n    def forward"))
_add("forward has another signature attribute", _LIN, "import inspect\nf = model.forward\nmodel.forward = lambda x: f(x)\nmodel.forward.__signature__ = inspect.Signature([inspect.Parameter('q', inspect.Parameter.POSITIONAL_ONLY)])")
_add("forward is a coroutine", _LIN, "", ("    def forward", "    async def forward"))
_add("forward yields its result", _model("return x * 2"), "", ("return x * 2", "yield x * 2"))
_add("the model is a ScriptModule, which an export refuses", _LIN, "model = torch.jit.script(model)")
_add("__getattr__ of the model computes an attribute", _model("x * self.by", more="def __getattr__(self, name):\n    if name == 'by':\n        return 2.0\n    return super().__getattr__(name)"), "", ("return 2.0", "return 3.0"))
_add("a property of the model depends on its training flag", _model("x * self.by", more="@property\ndef by(self):\n    return 2.0 if self.training else 3.0"), "model.train()")
_add("a descriptor counts its accesses", _model("x * self.by", more="by = Count()", top="class Count:\n    n = 0\n    def __get__(self, o, t=None):\n        Count.n += 1\n        return float(Count.n)"), "", ("n = 0\n", "n = 1\n"))
_add("a method is replaced by a lambda on the object", _model("self.scale(x)", more="def scale(self, x):\n    return x * 2"), "model.scale = lambda x: x * 3")
_add("an operation is in a local import of another file", _model("from lib import f\nreturn f(x)") + "--- lib.py\ndef f(x):\n    return x * 2\n", "", ("return x * 2\n\n", "return x * 3\n\n") if False else ("    return x * 2", "    return x * 3"))

# What is set without an operator
_add("the data of a buffer are set to a result", _model("a = x.sum(0)\npass\nreturn a * 2", _STATE), "", ("pass\n        return", "self.one.data = a\n        return"), harmless=True)
_add("the gradient of a weight is set to a result", _model("a = x @ self.lin.weight\npass\nreturn a * 2"), "", ("pass\n        return", "self.lin.weight.grad = a\n        return"))
_add("the data of an input are set to a result", _model("a = x * 2\npass\nreturn a * 2"), "", ("pass\n        return", "x.data = a\n        return"), harmless=True)
_add("the gradient of an input is set", _model("a = x * 2\npass\nreturn a * 2"), "", ("pass\n        return", "x.grad = a\n        return"), harmless=True)
_add("an input is told to require a gradient in forward", _model("a = x * 2\nreturn a * 2"), "", ("a = x * 2", "x.requires_grad_()\n        a = x * 2"), harmless=True)
_add("a result is kept as an attribute of a weight", _model("a = x * 2\npass\nreturn a * 2"), "", ("pass\n        return", "self.lin.weight.last = a\n        return"), harmless=True)
_add("two buffers exchange their names in forward", _model("a = x * self.one - self.two\npass\nreturn a", _STATE), "", ("pass\n        return", "self.one, self.two = self.two, self.one\n        return"))
_add("a buffer is assigned itself", _model("a = x * self.one\npass\nreturn a", _STATE), "", ("pass\n        return", "self.one = self.one\n        return"))
_add("a buffer is assigned a view of itself", _model("a = x * self.one\nv = self.one.view(4)\npass\nreturn a + v", _STATE), "", ("pass\n        return", "self.one = v\n        return"))
_add("a buffer is assigned with setattr from another object", _model("a = x.sum(0)\npass\nreturn a * 2", _STATE + "\nself.owner = [self]"), "", ("pass\n        return", "setattr(self.owner[0], 'one', a)\n        return"))
_add("a buffer is assigned with object.__setattr__", _model("a = x.sum(0)\npass\nreturn a * 2", _STATE), "", ("pass\n        return", "object.__setattr__(self, 'one', a)\n        return"), harmless=True)
_add("a buffer is assigned through load_state_dict", _model("a = x.sum(0)\npass\nreturn a * 2", _STATE), "", ("pass\n        return", "self.load_state_dict({'one': a}, strict=False, assign=True)\n        return"))
_add("a buffer is assigned in a nested module of the root's class", _model("a = x.sum(0)\nself.child.one = a\nreturn a * 2", _STATE + "\nself.child = nn.Module()\nself.child.register_buffer('one', torch.zeros(4))"), "", ("self.child.one = a", "pass"))
_add("a dict argument gets another entry in forward", "class Model(nn.Module):\n    def forward(self, x, d):\n        y = x * d['a']\n        pass\n        return y\n", "", ("pass", "d['b'] = y"), first="args = (torch.ones(3), {'a': torch.ones(3)})", harmless=True)
_add("a list argument is cleared in forward", "class Model(nn.Module):\n    def forward(self, x, d):\n        y = x * d[0]\n        pass\n        return y\n", "", ("pass", "d.clear()"), first="args = (torch.ones(3), [torch.ones(3)])", harmless=True)
_add("an argument's dict is changed and returned", "class Model(nn.Module):\n    def forward(self, x, d):\n        y = x * d['a']\n        return {'a': y}\n", "", ("return {'a': y}", "d['a'] = y\n        return d"), first="args = (torch.ones(3), {'a': torch.ones(3)})", harmless=True)
_add("the default dtype is set in forward and reset", _model("y = torch.ones(4)\nreturn x * y"), "", ("y = torch.ones(4)", "torch.set_default_dtype(torch.float64)\n        y = torch.ones(4)\n        torch.set_default_dtype(torch.float32)"))
_add("gradients are switched off in forward and stay off", _model("y = x * 2\nreturn y"), "", ("y = x * 2", "torch.set_grad_enabled(False)\n        y = x * 2"))
_add("gradients are switched off behind the functions", _model("y = x * 2\nreturn y"), "", ("y = x * 2", "torch._C._set_grad_enabled(False)\n        y = x * 2\n        torch._C._set_grad_enabled(True)"))
_add("the block of no_grad ends earlier", _model("with torch.no_grad():\n    y = x * 2\n    z = y + 1\nreturn z"), "", ("            z = y + 1", "        z = y + 1"))
_add("no_grad becomes inference_mode", _model("with torch.no_grad():\n    y = x * 2\nreturn y + 1"), "", ("torch.no_grad()", "torch.inference_mode()"), harmless=True)
_add("enable_grad is inside of no_grad", _model("with torch.no_grad():\n    y = x * 2\nreturn y + 1"), "", ("    y = x * 2", "    with torch.enable_grad():\n                y = x * 2"))
_add("anomaly detection is on in forward", _model("with contextlib.nullcontext():\n    y = x * 2\nreturn y + 1", top="import contextlib"), "", ("contextlib.nullcontext()", "torch.autograd.set_detect_anomaly(True)"), harmless=True)
_add("a profiler's range is around an operation", _model("with contextlib.nullcontext():\n    y = x * 2\nreturn y + 1", top="import contextlib"), "", ("contextlib.nullcontext()", "torch.profiler.record_function('part')"), harmless=True)
_add("autocast is around operations that it does not change", _model("with contextlib.nullcontext():\n    y = x + 2\nreturn y + 1", top="import contextlib"), "", ("contextlib.nullcontext()", "torch.autocast('cpu')"), harmless=True)
_add("autocast for another device is around", _model("with contextlib.nullcontext():\n    y = self.lin(x)\nreturn y + 1", top="import contextlib"), "", ("contextlib.nullcontext()", "torch.autocast('cuda')"), harmless=True)
_add("autocast is disabled in a part", _model("with torch.autocast('cpu', enabled=True):\n    y = self.lin(x)\nreturn y + 1"), "", ("enabled=True", "enabled=False"))
_add("autocast has another dtype", _model("with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = self.lin(x)\nreturn y"), "", ("bfloat16", "float16"))
_add("autocast does not cache weights", _model("with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = self.lin(self.lin(x))\nreturn y"), "", ("dtype=torch.bfloat16", "dtype=torch.bfloat16, cache_enabled=False"), harmless=True)
_add("attention is restricted to the math kernel in forward", _model("with contextlib.nullcontext():\n    y = F.scaled_dot_product_attention(q, q, q)\nreturn y".replace("with", "q = x.view(1, 1, 3, 4)\nwith", 1), top="import contextlib"), "",
     ("contextlib.nullcontext()", "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"))
_add("oneDNN is disabled around a convolution", _model("with contextlib.nullcontext():\n    y = F.conv2d(x.view(1, 1, 3, 4), torch.ones(1, 1, 2, 2))\nreturn y", top="import contextlib"), "",
     ("contextlib.nullcontext()", "torch.backends.mkldnn.flags(enabled=False)"), harmless=True)
_add("cuDNN is disabled around a normalization", _model("with contextlib.nullcontext():\n    y = F.batch_norm(x, torch.zeros(4), torch.ones(4))\nreturn y", top="import contextlib"), "",
     ("contextlib.nullcontext()", "torch.backends.cudnn.flags(enabled=False)"), harmless=True)
_add("the device context of a factory is meta", _model("with torch.device('cpu'):\n    y = torch.ones(4)\nreturn x * y.shape[0], y"), "", ("torch.device('cpu')", "torch.device('meta')"))
_add("vmap gets another randomness", _model("torch.vmap(lambda v: v + torch.rand(4), randomness='different')(x)"), "", ("'different'", "'same'"))
_add("vmap runs in chunks", _model("torch.vmap(lambda v: v * 2)(x)"), "", ("v * 2)", "v * 2, chunk_size=2)"))
_add("vmap maps another dimension", _model("torch.vmap(lambda v: v * 2, in_dims=0)(x)"), "", ("in_dims=0", "in_dims=1"))
_FN = """
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        return v * 2
    @staticmethod
    def backward(ctx, g):
        return g * 5
"""
_add("the forward of an autograd function is edited", _model("Fn.apply(x)", top=_FN), "", ("v * 2", "v * 3"))
_add("the backward of an autograd function is edited", _model("Fn.apply(x)", top=_FN), "", ("g * 5", "g * 6"), harmless=True)
_add("an autograd function marks its input as changed", _model("Fn.apply(x + 1)", top=_FN), "", ("return v * 2", "ctx.mark_dirty(v)\n        return v.mul_(2)"))
_add("the body of a while_loop is edited", _model("torch._higher_order_ops.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (torch.tensor(0), x))[1]", top="import torch._higher_order_ops"), "", ("v * 2", "v * 3"))
_add("the combine function of a scan is edited", _model("torch._higher_order_ops.scan(lambda c, v: (c + v, c * 1), torch.zeros(4), x)[1]", top="import torch._higher_order_ops"), "", ("c + v", "c - v"))
_add("a custom operator of the program is edited", _model("twice(x)", top="""
@torch.library.custom_op("field::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
"""), "", ("x * 2", "x * 3"))
_add("the fake kernel of a custom operator gives another size", _model("twice(x).shape[0] * x", top="""
@torch.library.custom_op("field::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
"""), "", ("torch.empty_like(x)", "x.new_empty(5)"))

# Shared modules again, as libraries ask for them
_ALBERT = "block = nn.Linear(4, 4)\nself.blocks = nn.ModuleList([block, block, block])"
_add("the last of repeated blocks is told by identity", _model("for i, b in enumerate(self.blocks):\n    x = b(x)\n    if i != 0:\n        x = x.relu()\nreturn x", _ALBERT), "",
     ("if i != 0:", "if b is not self.blocks[0]:"))
_add("blocks that were visited are skipped", _model("for i, b in enumerate(self.blocks):\n    if i < 1:\n        x = b(x)\nreturn x", _ALBERT), "",
     ("for i, b in enumerate(self.blocks):\n            if i < 1:", "seen = set()\n        for b in self.blocks:\n            if b not in seen and not seen.add(b):"))
_add("a block of the same class is constructed in forward", _model("y = self.blocks[0](x)\nreturn y * 2", _ALBERT), "", ("return y * 2", "return y * type(self.blocks[0])(1, 2).out_features"))
_add("a base class demands a keyword from its subclasses", _model("self.blocks[0](self.blocks[1](x))", "block = Block()\nself.blocks = nn.ModuleList([block, block])", """
class Base(nn.Module):
    def __init_subclass__(cls, name=None, **k):
        super().__init_subclass__(**k)
class Block(Base, name="block"):
    def forward(self, x):
        return x * 2
"""), "", ("name=None, **k", "name, **k"))
_add("the number of registered subclasses is a factor", _model("self.blocks[0](self.blocks[1](x)) * 1", "block = Block()\nself.blocks = nn.ModuleList([block, block])", """
class Base(nn.Module):
    known = []
    def __init_subclass__(cls, **k):
        Base.known.append(cls)
class Block(Base):
    def forward(self, x):
        return x * 2
"""), "", ("(x)) * 1", "(x)) * len(Base.known)"))
_add("a table by the module's class selects the activation", _model("F.relu(self.blocks[0](x))", _ALBERT, "ACT = {nn.Linear: F.relu}"), "",
     ("F.relu(self.blocks[0](x))", "ACT.get(self.blocks[0].__class__, torch.tanh)(self.blocks[0](x))"))
_add("shared blocks are iterated in reverse", _model("for b in self.blocks:\n    x = b(x) * 2\nreturn x", _ALBERT), "", ("in self.blocks", "in reversed(self.blocks)"), harmless=True)
_add("the index of a shared block in its list is used", _model("return self.blocks[1](x) * 0", _ALBERT), "", ("(x) * 0", "(x) * list(self.blocks).index(self.blocks[1])"))
_add("a shared block is compared with the one of the configuration", _model("return self.blocks[1](x) * 2", _ALBERT + "\nself.first = [block]"), "", ("(x) * 2", "(x) * (2 if self.blocks[1] == self.first[0] else 3)"))
_add("the modules of a model are counted in forward", _model("return self.blocks[1](x) * 3", _ALBERT), "", ("(x) * 3", "(x) * len(list(self.modules()))"))
_add("the submodules of a shared module are counted in forward", _model("return self.a(x) * 3", "self.a = nn.Sequential(nn.ReLU(), nn.ReLU())\nself.b = self.a"), "", ("(x) * 3", "(x) * len(list(self.a.modules()))"), harmless=True)
_add("a shared container is sliced with a step", _model("return self.a[0](x)", "self.a = nn.Sequential(nn.Tanh(), nn.ReLU(), nn.Sigmoid())\nself.b = self.a"), "", ("self.a[0](x)", "self.a[::2](x)"))
_add("a subclass of a container overrides its indexing", _model("return self.a[0](x)", "self.a = Rows(nn.Tanh(), nn.ReLU())\nself.b = self.a", "class Rows(nn.Sequential):\n    pass"), "",
     ("    pass\n", "    def __getitem__(self, i):\n        return super().__getitem__(1)\n"))
_add("an attribute of a shared module has a name of AttrProxy's", _model("return self.a(x) * 2", "self.a = M()\nself.b = self.a", "class M(nn.Module):\n    def get_base(self):\n        return 2\n    def forward(self, x):\n        return x + 1"), "",
     ("(x) * 2", "(x) * self.a.get_base()"))
_add("a shared module caches a property", _model("return self.a(x)", "self.a = M()\nself.b = self.a", "import functools\nclass M(nn.Module):\n    @functools.cached_property\n    def by(self):\n        return 2\n    def forward(self, x):\n        return x * self.by"), "", ("return 2\n", "return 3\n"))
_add("the type of the model itself is checked, which has a shared part", _model("return self.a(x) * (2 if type(self) is Model else 3)", _SHARED), "", ("type(self) is Model", "type(self.a) is nn.Linear"))
_add("an error is raised for an unexpected class of a shared module", _model("pass\nreturn self.a(x) * 2", _SHARED), "", ("pass\n        return", "if type(self.a) not in (nn.Linear, nn.Conv1d):\n            raise TypeError('unexpected layer')\n        return"))

# Errors that are caught in forward
_add("the builtin max is tried before relu", _model("torch.relu(x)"), "", ("return torch.relu(x)", "try:\n            return max(x, 3.0)\n        except RuntimeError:\n            return torch.relu(x)"))
_add("a text is made of a power", _model("x * {'8': 2.0, '8.0': 3.0}['8.0']", top="import math"), "", ("['8.0']", "[str(math.pow(2, 3))]"))
_add("a size is computed with math.pow, which is a float outside of an export", _model("return x.view(4, -1)", top="import math"), "", ("return x.view(4, -1)", "try:\n            return x.view(math.pow(2, 1), -1)\n        except TypeError:\n            return x.view(4, -1)"))
_add("a shape error is caught and the other product taken", _model("return x @ self.lin.weight"), "", ("return x @ self.lin.weight", "try:\n            return x @ x\n        except RuntimeError:\n            return x @ self.lin.weight"))
_add("a missing attribute is caught", _model("y = x * 2\nreturn y"), "", ("y = x * 2", "try:\n            y = x * self.missing\n        except AttributeError:\n            y = x * 3"))
_add("an assertion of torch on a value is caught", _model("return x * 2"), "", ("return x * 2", "try:\n            torch._check(bool((x > -1).all()))\n            return x * 2\n        except RuntimeError:\n            return x * 3"))
_add("tolist is caught", _model("return x * 2"), "", ("return x * 2", "try:\n            return x * x[0].tolist()[1]\n        except RuntimeError:\n            return x * 2"))

# Constants' names and None
_add("an attribute that is None is registered as a buffer after the assigned one", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "", ("self.register_buffer('two', torch.zeros(4))", "self.register_buffer('two', torch.zeros(4))\n        self.register_buffer('none', None)"), harmless=True)
_add("a buffer that is None is registered in a submodule", _model("self.lin(x)"), "model.lin.register_buffer('none', None)", harmless=True)
_add("the name of a constant cannot be a Python name", _model("x * getattr(self, NAME)", "setattr(self, NAME, torch.ones(4))", "NAME = 'c'"), "", ("NAME = 'c'", "NAME = 'a b/c'"), harmless=True)
_add("a constant has the name that an export gives", _model("x * self.c + torch.tensor(1.0)", "self.c = torch.ones(4)"), "", ("self.c", "self.lifted_tensor_0"))
_add("a row is selected by a 0-dim tensor of the model", _model("x[self.i]", "self.i = torch.tensor(1)"), "model.i = torch.tensor(2)")
_add("a row is selected by a number instead of a tensor", _model("x[self.i]", "self.i = torch.tensor([1])"), "model.i = 1")
_add("a slice ends at a tensor of the model", _model("x[:self.i]", "self.i = 2"), "model.i = 3")
_add("a mask of the model selects rows by another dtype", _model("x[self.m]", "self.m = torch.tensor([1, 0, 1])"), "model.m = torch.tensor([True, False, True])")

# Global state
_add("the default dtype is double", _model("x * torch.ones(4)"), "torch.set_default_dtype(torch.float64)")
_add("the default dtype is double, and the model has only literals", _model("x * 2"), "torch.set_default_dtype(torch.float64)")
_add("gradients are disabled around the compile", _LIN, "torch.set_grad_enabled(False)")
_add("inference mode is entered for the rest of the program", _LIN, "mode = torch.inference_mode()\nmode.__enter__()")
_add("autocast is entered for the rest of the program", _LIN, "mode = torch.autocast('cpu')\nmode.__enter__()")
_add("deterministic algorithms are required", _model("x.index_add(0, torch.tensor([0, 0]), torch.ones(2, 4))"), "torch.use_deterministic_algorithms(True)")
_add("a default device is set", _model("x * torch.ones(4)"), "torch.set_default_device('cpu')", harmless=True)
_add("a torch function mode replaces relu", _model("torch.relu(x)"), """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, f, types, args=(), kwargs=None):
        return (torch.tanh if f is torch.relu else f)(*args, **(kwargs or {}))
Mode().__enter__()
""")
_add("a torch function mode only counts", _model("torch.relu(x)"), """
class Mode(torch.overrides.TorchFunctionMode):
    n = 0
    def __torch_function__(self, f, types, args=(), kwargs=None):
        Mode.n += 1
        return f(*args, **(kwargs or {}))
Mode().__enter__()
""", harmless=True)
_add("the precision of matrix products is lower", _LIN, "torch.set_float32_matmul_precision('medium')", harmless=True)
_add("TF32 is allowed", _LIN, "torch.backends.cuda.matmul.allow_tf32 = True", harmless=True)
_add("flushing of denormals is on", _model("x * 1e-40"), "torch.set_flush_denormal(True)", harmless=True)
_add("memory is not filled by deterministic algorithms", _model("torch.empty(4).fill_(2) + x"), "torch.utils.deterministic.fill_uninitialized_memory = False", harmless=True)
_add("oneDNN is disabled globally", _model("F.conv2d(x.view(1, 1, 3, 4), torch.ones(1, 1, 2, 2))"), "torch.backends.mkldnn.enabled = False", harmless=True)
_add("einsum finds its path otherwise", _model("torch.einsum('ij,kj,kl->il', x, self.lin.weight, self.lin.weight)"), "torch.backends.opt_einsum.enabled = False", harmless=True)
_add("torch.nn.functional.relu is patched", _model("F.relu(x)"), "torch.nn.functional.relu = lambda v: v * 2")
_add("Tensor.__mul__ is patched", _model("x * 2"), "torch.Tensor.__mul__ = lambda a, b: torch.add(a, b)")
_add("a decomposition of the exporter is replaced", _model("F.silu(x)"), "import torch._decomp\ntorch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda v: v * 2")
_add("the exporter's option of leak detection is on", _model("KEEP.append(x * 2) or KEEP[-1] * 3", top="KEEP = []"), "import torch._export.config\ntorch._export.config.detect_non_strict_fake_tensor_leaks = True")
_add("the seed is another", _model("x + torch.rand(4)"), "torch.manual_seed(5)")
_add("an unused random number comes before the used one", _model("pass\nreturn x + torch.rand(4)"), "", ("pass\n        return", "torch.rand(1)\n        return"))
_add("the model seeds the generator in forward", _model("pass\nreturn x + torch.rand(4)"), "", ("pass\n        return", "torch.manual_seed(3)\n        return"))
_add("random numbers come from a generator of the model", _model("x + torch.rand(4, generator=self.g)", "self.g = None"), "model.g = torch.Generator().manual_seed(1)")
_add("the seed of the model's generator is a factor", _model("x * self.g.initial_seed()", "self.g = torch.Generator().manual_seed(3)"), "model.g.manual_seed(4)")
_add("a layer is dropped by Python's random numbers, seldom", _model("return x * 2 if random.random() < 0.999 else x * 3", top="import random"), "import random\nrandom.seed(0)", harmless=True)
_add("Python's random numbers are seeded in forward", _model("random.seed(self.seed)\nreturn x * random.random()", "self.seed = 1", "import random"), "model.seed = 2")
_add("noise is uniform instead of normal", _model("x + torch.rand_like(x)"), "", ("rand_like", "randn_like"))
_add("random integers have another limit", _model("x + torch.randint(0, 5, (4,))"), "", ("0, 5", "0, 6"))

# What a model says about its own weights
_add("state_dict is overridden to have only the adapters", _LIN, "model.state_dict = lambda *a, **k: {}", harmless=True)
_add("the class's state_dict drops the bias", _LIN, "def only(self, *a, **k):\n    d = torch.nn.Module.state_dict(self, *a, **k)\n    d.pop('lin.bias')\n    return d\napp.Model.state_dict = only", harmless=True)
_add("a state dict hook renames the keys", _LIN, "def rename(m, s, p, l):\n    for k in list(s):\n        s['module.' + k] = s.pop(k)\nmodel._register_state_dict_hook(rename)", harmless=True)
_add("a state dict hook casts the weights to half", _LIN, "def cast(m, s, p, l):\n    for k in list(s):\n        s[k] = s[k].half()\nmodel._register_state_dict_hook(cast)", harmless=True)
_add("a module saves an extra state", _LIN, "app.Model.get_extra_state = lambda self: {'version': 3}\napp.Model.set_extra_state = lambda self, s: None", harmless=True)
_add("named_parameters hides the frozen weights", _LIN, "f = model.named_parameters\nmodel.named_parameters = lambda *a, **k: (p for p in f(*a, **k) if 'bias' not in p[0])")
_add("named_parameters of the class adds a prefix", _LIN, "f = torch.nn.Module.named_parameters\napp.Model.named_parameters = lambda self, *a, **k: (('model.' + n, p) for n, p in f(self, *a, **k))")
_add("named_parameters has an old signature", _LIN, "f = torch.nn.Module.named_parameters\napp.Model.named_parameters = lambda self, prefix='', recurse=True: f(self, prefix, recurse)")
_add("named_buffers hides a buffer", _model("x * self.one", _STATE), "f = model.named_buffers\nmodel.named_buffers = lambda *a, **k: (p for p in f(*a, **k) if p[0] != 'one')")
_add("named_modules hides a layer", _LIN, "f = model.named_modules\nmodel.named_modules = lambda *a, **k: (p for p in f(*a, **k) if p[0] != 'lin')")
_add("named_children is overridden", _LIN, "model.named_children = lambda: iter(())", harmless=True)
_add("parameters() yields only what is trained", _LIN, "model.parameters = lambda recurse=True: iter([model.lin.bias])", harmless=True)
_add("a buffer is entered in the set of non-persistent ones by hand", _model("x * self.one", _STATE), "model._non_persistent_buffers_set.add('one')")
_add("a parameter is put in the dict of buffers", _model("x * self.a", _TWOP), "model._buffers['a'] = model._parameters.pop('a')")
_add("a parameter is shadowed by an attribute", _model("x * self.a", _TWOP), "model.__dict__['a'] = torch.zeros(4)")
_add("a buffer is shadowed by a class attribute's descriptor", _model("x * self.one", _STATE), "app.Model.one = property(lambda self: self.two + 1)")
_add("a parameter is also an attribute of another module", _model("x * self.child.alias", _TWOP + "\nself.child = nn.Module()\nself.child.__dict__['alias'] = self.a"), "model.child.__dict__['alias'] = model.b")
_add("a parameter is in the dict of modules' attributes under a second name", _model("x * self.a + self.c", _TWOP + "\nself.c = self.a"), "model.c = model.b")
_add("a submodule is put under another parent", _model("self.box.lin(x)", "self.box = nn.Module()\nself.box.lin = nn.Linear(4, 4)\nself.spare = nn.Module()\nself.spare.lin = nn.Linear(4, 4)"), "model.box, model.spare = model.spare, model.box", harmless=True)
_add("a weight is a Parameter of integers", _model("x.long() * self.k", "self.k = nn.Parameter(torch.ones(4, dtype=torch.long), requires_grad=False)"), "model.k = torch.nn.Parameter(torch.ones(4, dtype=torch.int32), requires_grad=False)")
_add("a hook looks for its shared module in a table", _model("y = self.a(x)\nreturn y * self.seen.get('a', 1)", _SHARED + "\nself.seen = {}\nmine = self.a\nself.a.register_forward_hook(lambda m, i, o: self.seen.update(a=2))"), "",
     ("lambda m, i, o: self.seen.update(a=2)", "lambda m, i, o: self.seen.update(a=2 if m is mine else 3)"))
_add("activations are collected by module and looked up", _model("y = self.a(x)\nreturn y * self.acts.get(self.a, x).sum()", _SHARED + "\nself.acts = {}\nself.a.register_forward_hook(lambda m, i, o: self.acts.__setitem__(m, o))"), "",
     ("self.acts.get(self.a, x)", "self.acts.get(self.b, x)"))
_add("the same hook is on a module with two names", _model("return self.a(x) + self.b(x)", _SHARED), "model.b.register_forward_hook(lambda m, i, o: o * 2)")

# Arguments of other classes
_add("an argument is a member of an IntEnum", _ONE.format("x * 2 if isinstance(n, int) and type(n) is int else x * 3"), "args = (args[0], E.A)", first="import enum\nE = enum.IntEnum('E', 'A')\n" + _XY.format("1"))
_add("an argument is a subclass of str", _ONE.format("x * 2 if type(n) is str else x * 3"), "args = (args[0], S('a'))", first="class S(str):\n    pass\n" + _XY.format("'a'"))
_add("an argument is a NumPy float", _ONE.format("x * 2 if type(n) is float else x * 3"), "import numpy\nargs = (args[0], numpy.float64(1.0))", first=_XY.format("1.0"))
_add("an argument is a subclass of int with a method", _ONE.format("x * (n.twice() if hasattr(n, 'twice') else n)"), "args = (args[0], N(3))", first="class N(int):\n    def twice(self):\n        return 2 * self\n" + _XY.format("3"))
_add("two arguments are the same object, and forward asks", _ONE.format("x * 2 if x is n else x * 3"), "args = (args[0], args[0])", first=_XY.format("torch.ones(2, 3)"), harmless=True)
_add("two arguments share memory, and forward asks", _ONE.format("x * 2 if torch._C._is_alias_of(x, n) else x * 3"), "args = (args[0], args[0][:1])", first=_XY.format("torch.ones(1, 3)"), harmless=True)
_add("a constant registered with pytree is an argument", _ONE.format("x * n.by"), "args = (args[0], C(3.0))", first="""
import dataclasses
@dataclasses.dataclass(frozen=True)
class C:
    by: float
torch.utils._pytree.register_constant(C)
args = (torch.ones(2, 3), C(2.0))
""")
_add("a constant registered with pytree compares equal to another", _ONE.format("x * n.by"), "args = (args[0], C(3.0))", first="""
class C:
    def __init__(self, by):
        self.by = by
    def __eq__(self, o):
        return True
    def __hash__(self):
        return 1
    def __repr__(self):
        return "C"
torch.utils._pytree.register_constant(C)
args = (torch.ones(2, 3), C(2.0))
""")
_add("a registered input container has a context of equal text", _ONE.format("x * n.t * n.by"), "args = (args[0], B(torch.ones(3), R(3.0)))", first="""
class R(float):
    def __repr__(self):
        return "r"
class B:
    def __init__(self, t, by):
        self.t, self.by = t, by
torch.utils._pytree.register_pytree_node(B, lambda b: ([b.t], b.by), lambda v, c: B(v[0], c), serialized_type_name="app.B",
                                          flatten_with_keys_fn=lambda b: ([(torch.utils._pytree.GetAttrKey("t"), b.t)], b.by))
args = (torch.ones(2, 3), B(torch.ones(3), R(2.0)))
""")
_add("a module is an argument", _ONE.format("n(x)"), "args = (args[0], torch.nn.Tanh())", first=_XY.format("torch.nn.ReLU()"))
_add("a dataclass argument has another default that is not passed", _ONE.format("x * n.t * n.by"), "", first="""
import dataclasses
@dataclasses.dataclass
class D:
    t: torch.Tensor
    by: float = 2.0
torch.export.register_dataclass(D)
args = (torch.ones(2, 3), D(torch.ones(3)))
""", second="""
import dataclasses
@dataclasses.dataclass
class D:
    t: torch.Tensor
    by: float = 3.0
torch.export.register_dataclass(D)
args = (torch.ones(2, 3), D(torch.ones(3)))
""")
_add("a value that is read is compared with the builtin max", _model("n = x[0, 2].int().item()\ntorch._check(n >= 0)\nm = torch.sym_max(n, 1)\nreturn x * m"), "", ("torch.sym_max(n, 1)", "max(n, 1)"), harmless=True)
_add("an argument is an int that the loop runs to", _ONE.format("sum([x * i for i in range(n)])"), "args = (args[0], 4)", first=_XY.format("3"))
_add("a missing argument has an empty tensor as its default", "class Model(nn.Module):\n    def forward(self, x, m=torch.ones(4)):\n        return x * m\n", "app.Model.forward.__defaults__[0].zero_()")

# What changes the exporter's view, and not the model's operations
_CHECKED = "x = self.act1(self.lin(x)) * (2 if type(self.lin) is nn.Linear else 3)\nreturn self.act2(x)"
_ACTS = "self.act1, self.act2 = nn.ReLU(), nn.ReLU()"
_add("two activations become one object, in a model that checks a layer's class", _model(_CHECKED, _ACTS), "model.act2 = model.act1")
_add("one dropout is used at two places, and blocks are told by identity", _model("for b in self.blocks:\n    x = b(x) * (2 if b is self.final[0] else 3)\nreturn self.d2(self.d1(x))",
     "self.blocks = nn.ModuleList([nn.Tanh(), nn.Sigmoid()])\nself.final = [self.blocks[-1]]\nself.d1, self.d2 = nn.Dropout(), nn.Dropout()"), "model.d2 = model.d1")
_add("identity layers are one object in a table by class", _model("for b in self.blocks:\n    x = b(x) * WEIGHT.get(type(b), 1)\nreturn x",
     "self.blocks = nn.ModuleList([nn.Identity(), nn.Tanh(), nn.Identity()])", "WEIGHT = {nn.Tanh: 2}"), "model.blocks[2] = model.blocks[0]")
_add("an activation is one object for two layers, and nothing asks", _model("self.act2(self.lin(self.act1(self.lin(x))))", _ACTS), "model.act2 = model.act1", harmless=True)
_add("an activation without weights is known under a second name", _model("return self.act1(x) * (2 if self.act1 in self.known else 3)", _ACTS + "\nself.known = {self.act1}"), "model.alias = model.act1")
_add("a layer keeps a reference to its parent, which registers it", _model("self.act1(x) * 2", _ACTS), "model.act1.parent = model")
_add("a layer with weights keeps a reference to its parent", _LIN, "model.lin.parent = model")
_add("a layer keeps a weak reference to its parent", _LIN, "import weakref\nmodel.lin.parent = weakref.ref(model)", harmless=True)
_add("a global hook doubles the tensors of tuples", _LIN, "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: tuple(t * 2 for t in o) if isinstance(o, tuple) else None)")
_add("a global pre-hook acts on modules without weights of their own", _model("F.linear(x, self.w)", "del self.lin\nself.w = nn.Parameter(torch.ones(4, 4))"),
     "torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: tuple(t + 1 for t in a) if not m._parameters else None)")
_add("a global hook gives an error for modules of unknown classes", _LIN,
     "def known(m, a, o):\n    if type(m).__name__ not in ('Model', 'Linear'):\n        raise TypeError(type(m).__name__)\ntorch.nn.modules.module.register_module_forward_hook(known)")
_add("a global hook of registration wraps each model", _LIN, """
class Double(torch.nn.Module):
    def __init__(self, m):
        super().__init__()
        object.__setattr__(self, 'm', m)
    def forward(self, x):
        return self.m(x) * 2
torch.nn.modules.module.register_module_module_registration_hook(lambda m, n, s: Double(s) if isinstance(s, app.Model) else None)
""")
_add("a global hook counts the calls of modules for a scale", _model("self.act1(self.act2(x)) * scale()", _ACTS, "DEPTH = []\ndef scale():\n    return 2 + len(DEPTH)"),
     "torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: app.DEPTH.append(1) if not isinstance(m, (app.Model, torch.nn.ReLU)) else None)")
_add("Module.__init__ is patched by a profiler and gives a name", _model("x * len(NAMES)", "NAMES.append(1)", "NAMES = []"), "f = torch.nn.Module.__init__\ndef init(self, *a, **k):\n    f(self, *a, **k)\n    app.NAMES.append(2)\ntorch.nn.Module.__init__ = init")
_add("a new tensor that is changed in forward becomes a constant of the model", _model("c = torch.tensor([0.0, 0.0, 0.0, 0.0])\nc.add_(x.sum(0))\nreturn x * c", "self.c = torch.zeros(4)"), "",
     ("c = torch.tensor([0.0, 0.0, 0.0, 0.0])", "c = self.c"))
_add("a new tensor becomes one of the model's constants of the same values", _model("c = torch.tensor([0.0, 1.0, 0.0, 0.0])\nreturn x * c", "self.c = torch.tensor([0.0, 1.0, 0.0, 0.0])"), "",
     ("        c = torch.tensor([0.0, 1.0, 0.0, 0.0])", "        c = self.c"))
_add("a new tensor is made of an array instead of a list", _model("c = torch.tensor([0.0, 1.0, 0.0, 0.0])\nreturn x * c", top="import numpy as np\nARR = np.array([0, 1, 0, 0], dtype=np.float32)"), "",
     ("torch.tensor([0.0, 1.0, 0.0, 0.0])", "torch.from_numpy(ARR)"), harmless=True)
_add("a constant is returned and was changed in place before", _model("c = torch.tensor([0.0, 1.0])\nc += 1\nreturn x * 2, c"), "", ("c += 1", "c = c + 1"))
_add("a detach is left out before a change in place", _model("y = x.detach()\ny += 1\nreturn y * 2, x"), "", ("x.detach()", "x.detach().clone()"))
_add("an alias is returned instead of the input", _model("y = x.detach()\nreturn y, x * 2"), "", ("y = x.detach()", "y = x"))
_add("a view of the whole input is returned", _model("return x.view(3, 4), x * 2"), "", ("x.view(3, 4)", "x"))
_add("a constant has the name of an exported constant, in a submodule", _model("x * self.lin.lifted_tensor_1 + torch.tensor(1.0)", "self.lin.lifted_tensor_1 = torch.ones(4)"), "", ("lifted_tensor_1", "lifted_tensor_0"), harmless=True)
_add("an attribute that is no tensor has the name of an exported constant", _model("x * torch.tensor([1.0, 2.0, 3.0, 4.0])"), "model.lifted_tensor_0 = 'text'", harmless=True)
_add("an unused constant has the name of an exported one", _model("x * torch.tensor([1.0, 2.0, 3.0, 4.0])"), "model.lifted_tensor_0 = torch.zeros(4)", harmless=True)
_add("a buffer has the name of an exported constant", _model("x * self.c + torch.tensor(1.0)", "self.c = torch.ones(4)"), "model.register_buffer('lifted_tensor_0', torch.zeros(4))")
_add("an input has the name of a weight's placeholder", _model("self.lin(x)"), "", ("def forward(self, x):\n        return self.lin(x)", "def forward(self, p_lin_weight):\n        return self.lin(p_lin_weight)"))
_add("an input has the name of a constant's placeholder", _model("x * self.one", "self.one = torch.ones(4)"), "", ("def forward(self, x):\n        return x", "def forward(self, c_one):\n        return c_one"))
_add("a submodule is called forward_hooks", _LIN, "model.forward_hooks = torch.nn.ReLU()", harmless=True)
_add("a submodule is called _export_root", _LIN, "model._export_root = torch.nn.ReLU()", harmless=True)
_add("an attribute is called _export_root", _LIN, "model.__dict__['_export_root'] = model", harmless=True)
_add("an attribute is called meta", _LIN, "model.meta = {'a': 1}", harmless=True)
_add("an attribute is called _guards_fn", _LIN, "model._guards_fn = 3", harmless=True)

# Caches around a model
_add("a table is kept in functools.cache", _model("x * table(4)", top="import functools\n@functools.cache\ndef table(n):\n    return torch.arange(float(n))"), harmless=True)
_add("a table is kept in a closure's variable", _model("x * table()", top="def maker():\n    kept = None\n    def table():\n        nonlocal kept\n        if kept is None:\n            kept = torch.arange(4.0)\n        return kept\n    return table\ntable = maker()"), harmless=True)
_add("a table is kept in an object with slots", _model("x * KEEP.get()", top="class Keep:\n    __slots__ = ('t',)\n    def get(self):\n        if not hasattr(self, 't'):\n            self.t = torch.arange(4.0)\n        return self.t\nKEEP = Keep()"), harmless=True)
_add("a table is kept in a global of another file", _model("import lib\nreturn x * lib.table()") + "--- lib.py\nTABLE = None\ndef table():\n    global TABLE\n    if TABLE is None:\n        TABLE = torch.arange(4.0)\n    return TABLE\n", harmless=True)
_add("a table is kept in threading.local", _model("x * table()", top="import threading\nL = threading.local()\ndef table():\n    if not hasattr(L, 't'):\n        L.t = torch.arange(4.0)\n    return L.t"), harmless=True)
_add("a table is kept in a context variable", _model("x * table()", top="import contextvars\nV = contextvars.ContextVar('v', default=None)\ndef table():\n    if V.get() is None:\n        V.set(torch.arange(4.0))\n    return V.get()"), harmless=True)
_add("a table is kept by a cached property", _model("x * self.table", top="import functools", more="@functools.cached_property\ndef table(self):\n    return torch.arange(4.0)"), harmless=True)
_add("the cached property was read before the compile", _model("x * self.table", top="import functools", more="@functools.cached_property\ndef table(self):\n    return torch.arange(4.0)"), "model.table")
_add("a table is kept in a weak dictionary by module", _model("x * table(self)", top="import weakref\nW = weakref.WeakKeyDictionary()\ndef table(m):\n    if m not in W:\n        W[m] = torch.arange(4.0)\n    return W[m]"), harmless=True)
_add("the model was called eagerly before the compile", _LIN, "model(*args)", harmless=True)
_add("a lazy layer is materialized by an eager call", _model("self.lazy(x)", "self.lazy = nn.LazyLinear(2)"), "model(*args)", make="import app\nmodel = app.Model().eval()\nmodel(*args)\n", harmless=True)

# What the exporter does with the model around the trace
_add("a dict of the model contains itself", _model("x * self.cfg['by']", "self.cfg = {'by': 2.0}"), "model.cfg['self'] = model.cfg")
_add("a list of the model has a cycle through another", _model("x * self.cfg[0]", "self.cfg = [2.0]"), "model.cfg.append([model.cfg])")
_add("the model's settings are a container whose flattening fails", _model("x * 2", "self.cfg = None", """
class Settings(dict):
    pass
def flatten(s):
    raise ValueError("settings are closed")
torch.utils._pytree.register_pytree_node(Settings, flatten, lambda v, c: Settings(), serialized_type_name="app.Settings")
"""), "model.cfg = app.Settings()")
_add("the model's settings are a tree of another kind that is deep", _model("x * 2", "self.tree = []"), "t = model.tree\nfor _ in range(2000):\n    t.append([])\n    t = t[0]")
_add("warnings are errors, and forward keeps its last result", _model("a = x.sum(0)\nself.last = a\nreturn a * 2", "self.last = None"), "import warnings\nwarnings.simplefilter('error')")
_add("warnings are errors for a plain model", _LIN, "import warnings\nwarnings.simplefilter('error')", harmless=True)
_add("layers compare equal by their configuration", _model("self.b(self.a(x))", "self.a, self.b = Layer(4, 4), Layer(4, 4)", """
class Layer(nn.Linear):
    pass
"""), "", ("    pass\n", "    def __eq__(self, o):\n        return isinstance(o, Layer) and self.in_features == o.in_features\n    def __hash__(self):\n        return hash(self.in_features)\n"))
_add("activations compare equal by their configuration", _model("self.b(self.a(x))", "self.a, self.b = Act(2.0), Act(3.0)", """
class Act(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def forward(self, x):
        return x * self.by
"""), "", ("        return x * self.by\n", "        return x * self.by\n    def __eq__(self, o):\n        return isinstance(o, Act)\n    def __hash__(self):\n        return 1\n"))
_add("the class of the model says no module", _LIN, "app.Model.__module__ = None")
_add("the class of a layer has another qualified name", _model("self.act(x)", "class Act(nn.Module):\n    def forward(self, x):\n        return x * 2\nself.act = Act()"), "type(model.act).__qualname__ = 'Renamed'", harmless=True)
_add("forward is compiled by torch", _LIN, "model.forward = torch.compile(model.forward, backend='eager')", harmless=True)
_add("forward is a static method of a class", _model("x * 2"), "class Other:\n    @staticmethod\n    def forward(x):\n        return x * 2\nmodel.forward = Other.forward", harmless=True)
_add("forward is a bound method of a plain object", _LIN, "class Runner:\n    def __init__(self, m):\n        self.m = m\n    def run(self, x):\n        return self.m.lin(x)\nmodel.forward = Runner(model).run", harmless=True)
_add("forward is an operator of torch", _model("torch.ops.aten.relu.default(x)"), "model.forward = torch.ops.aten.relu.default")
_add("forward is a scripted function", _model("torch.relu(x)"), "model.forward = torch.jit.script(lambda x: x) if False else torch.jit.trace(lambda x: torch.relu(x), args)")
_add("forward is a partial of a partial", "class Model(nn.Module):\n    def forward(self, x, by=2.0, plus=0.0):\n        return x * by + plus\n", "import functools\nmodel.forward = functools.partial(functools.partial(model.forward, by=2.0), plus=0.0)", harmless=True)
_add("forward is a partial of an object with __call__", _LIN, "import functools\nclass Call:\n    def __init__(self, f):\n        self.f = f\n    def __call__(self, x):\n        return self.f(x)\nmodel.forward = functools.partial(Call(model.forward))")
_add("forward is a module", _model("self.lin(x)"), "object.__setattr__(model, 'forward', model.lin)")
_add("the class's forward is an object with __get__ and no code", _LIN, "class Bound:\n    def __init__(self, f, o):\n        self.f, self.o = f, o\n    def __call__(self, x):\n        return self.f(self.o, x)\nclass Method:\n    def __init__(self, f):\n        self.f = f\n    def __get__(self, o, t=None):\n        return self if o is None else Bound(self.f, o)\napp.Model.forward = Method(app.Model.forward)")
_add("two heads use one activation object, and the fused head asks for its class", _model("y = self.h2(self.h1(x))\nreturn F.relu6(y) if isinstance(self.h2, nn.ReLU6) and self.h2.__class__ is not nn.ReLU6 else y", "self.h1, self.h2 = nn.ReLU6(), nn.ReLU6()"), "model.h1 = model.h2", harmless=False)
_add("a tokenizer of modules by name counts shared ones twice", _model("return self.h1(x) * len({id(m) for m in (self.h1, self.h2)})", "self.h1 = self.h2 = nn.Tanh()"), "model.h3 = torch.nn.Sequential(model.h2)")
_add("a stochastic-depth wrapper is known by its class", _model("y = self.d1(x)\nreturn y + x if self.d1.__class__ in SKIP else y", "self.d1, self.d2 = Drop(), Drop()", "class Drop(nn.Module):\n    def forward(self, x):\n        return x * 0.5\nSKIP = (Drop,)"), "model.d2 = model.d1")
_add("a fused kernel is chosen by comparing activation functions", _model("return F.gelu(x, approximate='tanh') if self.act == FAST else self.act(x)", "self.act, self.other = FAST, nn.GELU()", "FAST = nn.GELU()"), "model.other = model.act")
_add("a module is looked up in the list of its parent by index()", _model("i = list(self.children()).index(self.b)\nreturn self.b(x) * i", "self.a, self.b, self.c = nn.ReLU(), nn.Tanh(), nn.ReLU()"), "model.c = model.a")
_add("a global hook of parameters' registration is there", _LIN, "torch.nn.modules.module.register_module_parameter_registration_hook(lambda m, n, p: None)", harmless=True)
_add("a global hook of buffers' registration clones them", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "torch.nn.modules.module.register_module_buffer_registration_hook(lambda m, n, b: b * 2)")
_add("a global forward hook is removed again", _LIN, "h = torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o)\nh.remove()", harmless=True)
_add("a global hook logs the classes of all modules", _LIN, "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: print(type(m)))", harmless=True)
_add("a global hook ends the program's forward for large outputs", _LIN, "def limit(m, a, o):\n    if isinstance(o, tuple) and len(o) == 1:\n        return (o[0].clamp(max=1.0),)\ntorch.nn.modules.module.register_module_forward_hook(limit)")
_add("Module.__setattr__ is patched to freeze models", _LIN, "f = torch.nn.Module.__setattr__\ndef frozen(self, n, v):\n    if isinstance(v, app.Model):\n        raise AttributeError('frozen')\n    f(self, n, v)\ntorch.nn.Module.__setattr__ = frozen")
_add("Module.__call__ is patched by a tracer of calls", _LIN, "f = torch.nn.Module.__call__\ntorch.nn.Module.__call__ = lambda self, *a, **k: f(self, *a, **k)", harmless=True)
_add("Module.__call__ is patched to scale what unknown modules give", _LIN, "f = torch.nn.Module.__call__\ndef call(self, *a, **k):\n    o = f(self, *a, **k)\n    return o if isinstance(self, (app.Model, torch.nn.Linear)) else torch.utils._pytree.tree_map(lambda t: t * 2, o)\ntorch.nn.Module.__call__ = call", harmless=True)

# Patches that an export does not see, or sees alone
_add("a factor moves from forward to a patch of Module.__call__", _model("return self.lin(x) * 2", top="f = nn.Module.__call__\ndef call(self, *a, **k):\n    return f(self, *a, **k)\nnn.Module.__call__ = call"), "",
     ("(x) * 2", "(x)"), ("    return f(self, *a, **k)", "    o = f(self, *a, **k)\n    return o * 2 if isinstance(self, nn.Linear) else o"))
_add("a factor moves from forward to a patch of Module._call_impl", _model("return self.lin(x) * 2", top="f = nn.Module._call_impl\ndef call(self, *a, **k):\n    return f(self, *a, **k)\nnn.Module._call_impl = call"), "",
     ("(x) * 2", "(x)"), ("    return f(self, *a, **k)", "    o = f(self, *a, **k)\n    return o * 2 if isinstance(self, nn.Linear) else o"), harmless=True)
_add("a factor moves from forward to a patch of Module.__getattr__", _model("return x * 2.0", top="f = nn.Module.__getattr__\ndef get(self, name):\n    return f(self, name)\nnn.Module.__getattr__ = get"), "",
     ("x * 2.0", "x * self.factor"), ("    return f(self, name)", "    return 2.0 if name == 'factor' else f(self, name)"))
_add("a factor moves from forward to a class that overrides __call__", _model("return self.act(x) * 2", "self.act = Act()", "class Act(nn.Module):\n    def forward(self, x):\n        return x + 1"), "",
     ("(x) * 2", "(x)"), ("        return x + 1", "        return x + 1\n    def __call__(self, x):\n        return super().__call__(x) * 2"), harmless=True)
_add("a factor moves from forward to a hook of the model", _model("return self.lin(x) * 2", "pass"), "", ("(x) * 2", "(x)"), ("        pass\n", "        self.register_forward_hook(lambda m, a, o: o * 2)\n"), harmless=True)
_add("a factor moves from forward to a global hook", _model("return self.lin(x) * 2", top="ON = 0"), "", ("(x) * 2", "(x)"),
     ("ON = 0", "nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2 if isinstance(m, nn.Linear) else None)"), harmless=True)
_add("a factor moves from forward to a global hook for all but layers", _model("return self.lin(x) * 2", top="ON = 0"), "", ("(x) * 2", "(x)"),
     ("ON = 0", "nn.modules.module.register_module_forward_hook(lambda m, a, o: torch.utils._pytree.tree_map(lambda t: t * 2, o) if not isinstance(m, nn.Linear) else None)"))
_add("a factor is the value of a power that both ways compute", _model("return x * 8.0", top="import math"), "", ("x * 8.0", "x * math.pow(2.0, 3)"), harmless=True)
_add("the size of a head's scale is a float power", _model("return x * 0.5", top="import math"), "", ("x * 0.5", "x * math.pow(4, -0.5)"), harmless=True)
_add("a power is imported by its name, which an export leaves alone", _model("return x.long() * 8.0", top="from math import pow"), "", ("x.long() * 8.0", "x.long() * pow(2, 3)"), harmless=True)
_add("a power overflows as a float and not as an int", _model("return x * 2", top="import math\ndef big(a, b):\n    try:\n        return math.pow(a, b)\n    except OverflowError:\n        return 0"), "", ("x * 2", "x * (3 if big(10, 400) else 2)"))
_add("a power of zero raises another error", _model("return x * 2", top="import math\ndef inverse(a):\n    try:\n        return math.pow(a, -1)\n    except ValueError:\n        return 2\n    except ZeroDivisionError:\n        return 3"), "", ("x * 2", "x * inverse(0)"))
_add("a power of a large int is exact while exporting", _model("return x.long() + 10000000000000000", top="import math"), "", ("+ 10000000000000000", "+ int(math.pow(3, 34))"), ("return x.long() + int(math.pow(3, 34))", "return x.long() + (int(math.pow(3, 34)) - 16677181699656569 + 10000000000000000)") )
_add("max of an empty list has another message", _model("return x * 2", top="def top(v):\n    try:\n        return max(v)\n    except ValueError as e:\n        return 2 if 'iterable argument is empty' in str(e) else 3"), "", ("x * 2", "x * top([])"))
_add("max takes a default for an empty list", _model("return x * 2"), "", ("x * 2", "x * max([], default=2)"), harmless=True)
_add("max is asked for the largest by a key", _model("return x * 2"), "", ("x * 2", "x * max([1, 2, -5], key=lambda v: v)"), harmless=True)
_add("max of a generator of numbers is taken", _model("return x * 2"), "", ("x * 2", "x * max(i for i in range(3))"), harmless=True)
_add("max of a number that is no int and a tensor fails only in eager mode", _model("return x.clamp(min=0.5)"), "", ("x.clamp(min=0.5)", "max(0.5, x)"))
_add("sorting by the builtin max of two layers' sizes", _model("return x * 4", "self.o = nn.Linear(4, 2)"), "", ("x * 4", "x * max(self.lin, self.o, key=lambda m: m.out_features).out_features"), harmless=True)
_add("oneDNN decides the layout of an input in forward", _model("return F.conv2d(x.view(1, 1, 3, 4), torch.ones(2, 1, 2, 2))"), "", ("x.view(1, 1, 3, 4)", "(x if torch.backends.mkldnn.enabled else x * 2).view(1, 1, 3, 4)"))
_add("oneDNN is only asked whether it is available", _model("return x * 2"), "", ("x * 2", "x * (2 if torch.backends.mkldnn.is_available() else 3)"), harmless=True)
_add("cuDNN's flag goes into an operator's argument", _model("return torch.batch_norm(x, None, None, torch.zeros(4), torch.ones(4), False, 0.1, 1e-5, True)"), "", ("1e-5, True", "1e-5, torch.backends.cudnn.enabled"), harmless=True)

# State outside of the model's file
_WARM = {"make": "import app\nmodel = app.Model().eval()\nif WARM:\n    model(*args)\n", "first": "WARM = True", "second": "WARM = False", "live": False}
_add("a library's first call gives another factor, and only the first process had made it", _model("import lib\nreturn x * lib.factor()")
     + "--- lib.py\nREADY = False\ndef factor():\n    global READY\n    if not READY:\n        READY = True\n        return 3.0\n    return 2.0\n", **_WARM)
_add("a library's table was made by an eager call only in the first process", _model("import lib\nreturn x * lib.table()")
     + "--- lib.py\nTABLE = None\ndef table():\n    global TABLE\n    if TABLE is None:\n        TABLE = torch.arange(4.0)\n    return TABLE\n", **_WARM)
_add("an object with slots of a library was filled only in the first process", _model("x * KEEP.get()", top="class Keep:\n    __slots__ = ('t',)\n    def get(self):\n        if not hasattr(self, 't'):\n            self.t = torch.arange(4.0)\n        return self.t\nKEEP = Keep()"), **_WARM)
_add("a library warns and initializes itself at the first call", _model("import lib\nlib.ready()\nreturn x * 2") + "--- lib.py\nimport warnings\nREADY = []\ndef ready():\n    if not READY:\n        warnings.warn('first')\n        READY.append(1)\n", harmless=True, **_WARM)

# Assignments that an export loses
_CHILD = _STATE + "\nself.child = nn.Module()\nself.child.register_buffer('one', torch.zeros(4))\nself.child.p = nn.Parameter(torch.zeros(4))"
_SUMS = "a = x.sum(0)\npass\nreturn a * 2"
_SITE = "pass\n        return"
_add("a buffer of a child is assigned, which an export loses", _model(_SUMS, _CHILD), "", (_SITE, "self.child.one = a\n        return"))
_add("a buffer of a child is assigned a zero that was there", _model(_SUMS, _CHILD), "", (_SITE, "self.child.one = self.one\n        return"))
_add("a parameter of a child is assigned None", _model(_SUMS, _CHILD), "", (_SITE, "self.child.p = None\n        return"))
_add("a parameter of a child is deleted in forward", _model(_SUMS, _CHILD), "", (_SITE, "del self.child.p\n        return"))
_add("a parameter of a child is assigned another parameter", _model(_SUMS, _CHILD + "\nself.q = nn.Parameter(torch.ones(4))"), "", (_SITE, "self.child.p = self.q\n        return"))
_add("a child is replaced in forward", _model(_SUMS, _CHILD), "", (_SITE, "self.child = self.lin\n        return"))
_add("a child is put in evaluation mode in forward", _model(_SUMS, _CHILD), "", (_SITE, "self.child.train(True)\n        return"), harmless=True)
_add("a child's parameter is frozen in forward", _model(_SUMS, _CHILD), "", (_SITE, "self.child.p.requires_grad_(False)\n        return"), harmless=True)
_add("gradients of the model are cleared in forward", _model(_SUMS, _CHILD), "", (_SITE, "self.zero_grad()\n        return"), harmless=True)
_add("the model is moved to its own device in forward", _model(_SUMS, _CHILD), "", (_SITE, "self.to('cpu')\n        return"), harmless=True)
_add("the model is cast in forward", _model("a = x.sum(0)\npass\nreturn a * 2", _CHILD), "", (_SITE, "self.child.double()\n        return"))
_add("a hook is registered in forward", _model("a = x.sum(0)\npass\nreturn a * 2", _CHILD), "", (_SITE, "self.child.register_forward_hook(lambda m, i, o: o)\n        return"), harmless=True)
_add("a buffer of the model is assigned after an empty one of a child", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _CHILD), "", ("self.child.register_buffer('one', torch.zeros(4))", "self.child.register_buffer('one', torch.zeros(4))\n        self.child.register_buffer('zero', None)"), harmless=True)
_add("an empty parameter is registered beside the buffer that is assigned", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _CHILD), "", ("self.child = nn.Module()", "self.child = nn.Module()\n        self.register_parameter('nothing', None)"), harmless=True)
_add("an entry of a library's class is patched before the batch is read", _model("return x * self.child.scale", _CHILD + "\nself.child.scale = 2.0"), "type(model.child).scale = 5.0\ndel model.child.scale")

# The same with dynamic sizes
_add("with a dynamic batch, a power is written with math.pow", _model("return x.long() * 8.0", top="import math"), "", ("x.long() * 8.0", "x.long() * math.pow(2, 3)"), first=_DYN)
_add("with a dynamic batch, two activations become one object", _model(_CHECKED, _ACTS), "model.act2 = model.act1", first=_DYN)
_add("with a dynamic batch, a global hook changes tuples", _LIN, "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: tuple(t * 2 for t in o) if isinstance(o, tuple) else None)", first=_DYN)
_add("with a dynamic batch, forward is an object without code", _LIN, "class Call:\n    def __init__(self, f):\n        self.f = f\n    def __call__(self, x):\n        return self.f(x)\nmodel.forward = Call(model.forward)", first=_DYN)
_add("with a dynamic batch, an empty buffer comes before the assigned one", _model("a = x.sum(0)\nself.one = a\nreturn a * 2", _STATE), "",
     ("self.register_buffer('one', torch.zeros(4))", "self.register_buffer('none', None)\n        self.register_buffer('one', torch.zeros(4))"), first=_DYN)
_add("with a dynamic batch, settings contain themselves", _model("x * self.cfg['by']", "self.cfg = {'by': 2.0}"), "model.cfg['self'] = model.cfg", first=_DYN)
_add("with a dynamic batch, oneDNN decides", _model("return x * 3"), "", ("x * 3", "x * (3 if torch.backends.mkldnn.enabled else 2)"), first=_DYN)
_add("with a dynamic batch, a patch of Module.__call__ has the factor", _model("return self.lin(x) * 2", top="f = nn.Module.__call__\ndef call(self, *a, **k):\n    return f(self, *a, **k)\nnn.Module.__call__ = call"), "",
     ("(x) * 2", "(x)"), ("    return f(self, *a, **k)", "    o = f(self, *a, **k)\n    return o * 2 if isinstance(self, nn.Linear) else o"), first=_DYN)
_add("with a dynamic batch, layers compare equal", _model("self.b(self.a(x))", "self.a, self.b = Act(2.0), Act(3.0)", """
class Act(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def forward(self, x):
        return x * self.by
"""), "", ("        return x * self.by\n", "        return x * self.by\n    def __eq__(self, o):\n        return isinstance(o, Act)\n    def __hash__(self):\n        return 1\n"), first=_DYN)
_add("a size is compared with an attribute of a shared block", _model("n = 2 if x.shape[0] > 3 else 3\nreturn self.act1(x) * n", _ACTS), "", ("x.shape[0] > 3", "x.shape[0] > 3 and self.act1 is self.act1"), first=_DYN, harmless=True)
_add("with a value that is read, two activations become one object", _model("n = x[0, 2].int().item()\ntorch._check(n >= 0)\nx = x * n\n" + _CHECKED, _ACTS), "model.act2 = model.act1")
