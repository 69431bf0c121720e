"""Sizes that are dynamic or depend on values, and the shapes of arguments: what engineers change about them between two runs."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

import textwrap

from tests.direct.field_scenarios import _add, _model

_NAMED, _AUTO = "({0: Dim('n', max=64)},)", "({0: Dim.AUTO},)"
_X = "torch.arange(24.0).reshape(6, 4).clone()"
_FROM = "import math\nfrom torch.export import Dim\n"


_SAME = {
    "dims": ("a Dim is made a second time with the same range",),
    "arithmetic": ("a square as a product", "a product of the shape in place of numel"),
    "branch": ("a limit is written with the sides exchanged", "a limit of an or that comes second", "a range of sizes"),
    "floats of sizes": ("a float offset of zero", "a distributed integer factor", "a floor of floors", "a size is a result", "a result's size is a result"),
    "values": ("a check's message", "_check_is_size in place of _check"),
    "layers on sizes": ("a convolution's padding is 'same'", "the mean of two dynamic dims", "a minimum with a constant, whose order is another"),
    "shapes of arguments": ("with equal sizes by an addition the other input's size is asked", "the same tensor is given twice", "the same tensor was given twice"),
    "another expression": ("a size plus and minus one", "twice the size divided by two", "a size times one", "a size minus the other and plus it", "a product's order", "a sum's order", "a product's order as a factor", "a negated size twice", "a maximum with a constant that the range implies", "a maximum of two maxima", "a size of the result of an operation", "a size of a slice", "a size of a padded tensor", "a size of a convolution's result", "a size by a stride", "a storage's number of elements"),
    "another expression of values": ("a check stands behind the use", "a check is written with the sides exchanged"),
    "one tensor for two inputs, dynamic": ("forward asks whether they are one object", "forward asks whether they are one object, and they were", "a set of them is counted"),
    "one tensor for two inputs, static": ("forward asks whether they are one object", "forward asks whether they are one object, and they were", "a set of them is counted"),
    "one tensor for two inputs, in a list": ("they are one object",),
}
"""Other code for the same program, by the first words of the description."""


def _body(text: str) -> str:
    text = textwrap.dedent(text).strip("\n")
    return textwrap.indent(text if "return " in text else f"return {text}", " " * 8)


def _s(doc: str, forward: str, change: str = "", *to: tuple[str, str], ds: str = _NAMED, args: str = f"({_X},)", sig: str = "x", init: str = "pass", top: str = "", before: str = "", **more: object) -> None:
    """Add a pair whose model gets ``args`` with the dynamic shapes ``ds``."""
    group, _, what = doc.partition(": ")
    if what in _SAME.get(group, ()):
        more = {**more, "harmless": True}
    text = _model(forward, init, "import math\n" + textwrap.dedent(top)).replace("def forward(self, x):", f"def forward(self, {sig}):")
    _add(doc, text, change, *to, first=f"{_FROM}{textwrap.dedent(before)}args = {args}\ndynamic_shapes = {ds}\n", **more)


def _edit(doc: str, old: str, new: str, **more: object) -> None:
    """Add a pair whose second process has another body of ``forward``."""
    _s(doc, old, "", (_body(old), _body(new)), **more)


# 1. The argument dynamic_shapes: ranges, names, forms.

for _doc, _forward, _ds, _change, _more in (
    ("the maximal batch of a service is doubled", "self.lin(x).relu()", "({0: Dim('batch', min=1, max=32)},)", "dynamic_shapes = ({0: Dim('batch', min=1, max=64)},)", {}),
    ("the minimal batch of 1 becomes 2", "self.lin(x).relu()", "({0: Dim('batch', min=1, max=32)},)", "dynamic_shapes = ({0: Dim('batch', min=2, max=32)},)", {}),
    ("the maximum is lifted", "self.lin(x).relu()", "({0: Dim('batch', max=32)},)", "dynamic_shapes = ({0: Dim('batch')},)", {}),
    ("AUTO is asked with a minimum", "self.lin(x).relu()", "({0: Dim.AUTO},)", "dynamic_shapes = ({0: Dim.AUTO(min=4)},)", {}),
    ("AUTO is asked with a maximum instead of a minimum", "self.lin(x).relu()", "({0: Dim.AUTO(min=4)},)", "dynamic_shapes = ({0: Dim.AUTO(max=40)},)", {}),
    ("DYNAMIC gets a range", "self.lin(x).relu()", "({0: Dim.DYNAMIC},)", "dynamic_shapes = ({0: Dim.DYNAMIC(min=3, max=30)},)", {}),
    ("a static number in place of a dim", "self.lin(x).relu()", "({0: Dim.DYNAMIC},)", "dynamic_shapes = ({0: 6},)", {}),
    ("None for a dim", "self.lin(x).relu()", "({0: Dim.AUTO},)", "dynamic_shapes = ({0: None},)", {}),
    ("None for an argument", "self.lin(x).relu()", "({0: Dim.AUTO},)", "dynamic_shapes = (None,)", {}),
    ("an empty dict for an argument", "self.lin(x).relu()", "({0: Dim.AUTO},)", "dynamic_shapes = ({},)", {}),
    ("a tuple of dims lists the second one too", "x * 2", "((Dim.AUTO, None),)", "dynamic_shapes = ((Dim.AUTO, Dim.AUTO),)", {}),
    ("a tuple of dims in another order", "x * 2", "((Dim.AUTO, None),)", "dynamic_shapes = ((None, Dim.AUTO),)", {}),
    ("a list of dims: one becomes static", "x * 2", "([Dim.AUTO, Dim.AUTO],)", "dynamic_shapes = ([Dim.AUTO, Dim.STATIC],)", {}),
    ("both dims of a matrix get one Dim", "x @ x", "({0: Dim.AUTO, 1: Dim.AUTO},)", "n = Dim('n')\ndynamic_shapes = ({0: n, 1: n},)", {"args": "(torch.ones(5, 5),)"}),
    ("both dims had one Dim and get two", "x * 2", "(lambda n: ({0: n, 1: n},))(Dim('n', max=9))", "dynamic_shapes = ({0: Dim('n', max=9), 1: Dim('m', max=9)},)", {"args": "(torch.ones(5, 5),)"}),
    ("the two dims' Dims change places", "x * 2", "({0: Dim('n', max=9), 1: Dim('m', max=8)},)", "dynamic_shapes = ({0: Dim('m', max=8), 1: Dim('n', max=9)},)", {"args": "(torch.ones(5, 5),)"}),
    ("the order of a dict of dims", "x * 2", "({0: Dim.AUTO, 1: Dim.AUTO},)", "dynamic_shapes = ({1: Dim.AUTO, 0: Dim.AUTO},)", {"args": "(torch.ones(5, 6),)"}),
    ("a Dim has a multiple of eight", "x * 2", "({0: Dim('n', max=64)},)", "n = Dim('n', max=8)\ndynamic_shapes = ({0: 8 * n},)", {"args": "(torch.ones(16, 4),)"}),
    ("a derived Dim's root has another maximum", "x * 2", "({0: 8 * Dim('n', max=8)},)", "dynamic_shapes = ({0: 8 * Dim('n', max=9)},)", {"args": "(torch.ones(16, 4),)"}),
    ("a derived Dim is 4 n instead of 8 n", "x * 2", "({0: 8 * Dim('n', max=8)},)", "dynamic_shapes = ({0: 4 * Dim('n', max=16)},)", {"args": "(torch.ones(16, 4),)"}),
    ("a derived Dim gets a number more", "x * 2", "({0: 4 * Dim('n', max=8)},)", "dynamic_shapes = ({0: 4 * Dim('n', max=8) + 1},)", {"args": "(torch.ones(16, 4),)"}),
    ("a derived Dim is n - 1 instead of n + 1", "x * 2", "({0: Dim('n', max=8) + 1},)", "dynamic_shapes = ({0: Dim('n', min=3, max=8) - 1},)", {"args": "(torch.ones(5, 4),)"}),
    ("a Dim as a class's attribute", "x * 2", "({0: C.n},)", "C.n = Dim('n', max=9)\ndynamic_shapes = ({0: C.n},)", {"before": "class C:\n    n = Dim('n', max=8)\n"}),
    ("a function that makes the shapes gets another limit", "x * 2", "shapes()", "dynamic_shapes = shapes(9)", {"before": "def shapes(limit=8):\n    return ({0: Dim('n', max=limit)},)\n"}),
    ("a function that makes the shapes is called again", "x * 2", "shapes()", "dynamic_shapes = shapes(8)", {"before": "def shapes(limit=8):\n    return ({0: Dim('n', max=limit)},)\n", "harmless": True}),
    ("a Dim is made a second time with the same range", "x * 2", "({0: Dim('n', max=8)},)", "dynamic_shapes = ({0: Dim('n', min=0, max=8)},)", {}),
    ("shapes by the parameter's name, in a subclass of dict", "x * 2", "{'x': {0: Dim('n', max=8)}}", "import collections\ndynamic_shapes = collections.OrderedDict(x={0: Dim('n', max=9)})", {}),
    ("negative dims do not count as dims", "x * 2", "({0: Dim('n', max=8)},)", "dynamic_shapes = ({-2: Dim('n', max=8)},)", {}),
    ("a collection of shapes says another dim", "x * 2", "S", "T = torch.export.ShapesCollection()\nT[args[0]] = {1: Dim.AUTO}\ndynamic_shapes = T", {"before": f"args = ({_X},)\nS = torch.export.ShapesCollection()\nS[args[0]] = {{0: Dim.AUTO}}\n", "args": "args"}),
    ("a collection of shapes loses its entry", "x * 2", "S", "dynamic_shapes = torch.export.ShapesCollection()", {"before": f"args = ({_X},)\nS = torch.export.ShapesCollection()\nS[args[0]] = {{0: Dim.AUTO}}\n", "args": "args"}),
    ("a collection of shapes becomes a plain tuple with the same content", "x * 2", "S", "dynamic_shapes = ({0: Dim.AUTO},)", {"before": f"args = ({_X},)\nS = torch.export.ShapesCollection()\nS[args[0]] = {{0: Dim.AUTO}}\n", "args": "args"}),
    ("a collection of shapes is made for another tensor of these sizes", "x * 2", "S", "args = (args[0] + 1,)", {"before": f"args = ({_X},)\nS = torch.export.ShapesCollection()\nS[args[0]] = {{0: Dim.AUTO}}\n", "args": "args"}),
):
    _s(f"dims: {_doc}", _forward, _change, ds=_ds, **_more)

_TWO = "(torch.ones(6, 4), torch.ones(6, 4))"
for _doc, _forward, _ds, _change, _more in (
    ("one Dim in two inputs becomes two", "x.sum(0) + y.sum(0)", "(lambda n: ({0: n}, {0: n}))(Dim('n', max=9))", "dynamic_shapes = ({0: Dim('n', max=9)}, {0: Dim('m', max=9)})", {}),
    ("two Dims of one name, once one object and once two", "x.sum(0) + y.sum(0)", "(lambda n: ({0: n}, {0: n}))(Dim('n', max=9))", "dynamic_shapes = ({0: Dim('n', max=9)}, {0: Dim('n', max=9)})", {}),
    ("the second input is static now", "x.sum(0) + y.sum(0)", "({0: Dim.AUTO}, {0: Dim.AUTO})", "dynamic_shapes = ({0: Dim.AUTO}, None)", {}),
    ("the first input is static in place of the second", "x.sum(0) + y.sum(0)", "({0: Dim.AUTO}, None)", "dynamic_shapes = (None, {0: Dim.AUTO})", {}),
    ("the key's length is twice the query's", "x @ y.t()", "({0: Dim('q', max=9)}, {0: Dim('k', max=18)})", "q = Dim('q', max=9)\ndynamic_shapes = ({0: q}, {0: 2 * q})", {"args": "(torch.ones(3, 4), torch.ones(6, 4))"}),
    ("the key's length is one more than the query's", "x @ y.t()", "(lambda q: ({0: q}, {0: q + 1}))(Dim('q', max=9))", "dynamic_shapes = ({0: Dim('q', max=9)}, {0: Dim('k', max=9)})", {"args": "(torch.ones(3, 4), torch.ones(4, 4))"}),
    ("the root of a derived Dim is in the other input", "x.sum(0) + y.sum(0)", "(lambda q: ({0: q}, {0: q + 1}))(Dim('q', max=9))", "q = Dim('q', max=10)\ndynamic_shapes = ({0: q - 1}, {0: q})", {"args": "(torch.ones(3, 4), torch.ones(4, 4))"}),
    ("a dict by names in another order", "x.sum(0) + y.sum(0)", "{'x': {0: Dim('n', max=9)}, 'y': {0: Dim('m', max=8)}}", "dynamic_shapes = {'y': {0: Dim('m', max=8)}, 'x': {0: Dim('n', max=9)}}", {}),
    ("a dict by names with the Dims exchanged", "x.sum(0) + y.sum(0)", "{'x': {0: Dim('n', max=9)}, 'y': {0: Dim('m', max=8)}}", "dynamic_shapes = {'x': {0: Dim('m', max=8)}, 'y': {0: Dim('n', max=9)}}", {}),
    ("the batch is in dim 1 of the second input", "x.sum(0) + y.sum(0)", "({0: Dim.AUTO}, {0: Dim.AUTO})", "dynamic_shapes = ({0: Dim.AUTO}, {1: Dim.AUTO})", {"args": "(torch.ones(6, 4), torch.ones(6, 4))"}),
    ("additional inputs have another batch", "x.sum(0) + y.sum(0)", "A", "B = torch.export.AdditionalInputs()\nB.add((torch.ones(6, 4), torch.ones(7, 4)))\ndynamic_shapes = B", {"before": "A = torch.export.AdditionalInputs()\nA.add((torch.ones(7, 4), torch.ones(6, 4)))\n"}),
    ("equal rows of AUTO become unequal in the example", "x.sum(0) + y.sum(0)", "({0: Dim.AUTO}, {0: Dim.AUTO})", "args = (torch.ones(6, 4), torch.ones(5, 4))", {}),
):
    _s(f"dims of two: {_doc}", _forward, _change, ds=_ds, sig="x, y", **{"args": _TWO, **_more})

# 2. Arithmetic on sizes, edited in forward. The example's value is often the same: it has 6 rows.

for _doc, _old, _new, _more in (
    ("a mean by the size in place of a constant", "self.lin(x).sum(0) / 6", "self.lin(x).sum(0) / x.shape[0]", {}),
    ("a mean by the elements of all dims", "x.sum() / x.shape[0]", "x.sum() / x.numel()", {}),
    ("a mean by n - 1", "x.sum(0) / x.shape[0]", "x.sum(0) / (x.shape[0] - 1)", {}),
    ("a mean with an epsilon", "x.sum(0) / (x.shape[0] + 1e-6)", "x.sum(0) / (x.shape[0] + 1e-5)", {}),
    ("half of the rows as a difference", "x[: x.shape[0] // 2]", "x[: x.shape[0] - 3]", {}),
    ("half of the rows as a constant", "x[: x.shape[0] // 2]", "x[:3]", {}),
    ("half of the rows, rounded up", "x[: x.shape[0] // 2]", "x[: (x.shape[0] + 1) // 2]", {}),
    ("half of the rows by math.ceil", "x[: math.floor(x.shape[0] / 2)]", "x[: math.ceil(x.shape[0] / 2)]", {}),
    ("a fraction by math.ceil of 0.5 and 0.4", "torch.ones(math.ceil(x.shape[0] * 0.5)), x * 2", "torch.ones(math.ceil(x.shape[0] * 0.4)), x * 2", {}),
    ("a fraction by int of 0.5 and 0.55", "torch.ones(int(x.shape[0] * 0.5)), x * 2", "torch.ones(int(x.shape[0] * 0.55)), x * 2", {}),
    ("round in place of int", "torch.ones(int(x.shape[0] * 0.5)), x * 2", "torch.ones(round(x.shape[0] * 0.5)), x * 2", {}),
    ("a scale by the root of the size", "x / math.sqrt(x.shape[0])", "x / math.sqrt(x.shape[0] + 1)", {}),
    ("a scale by a power of the size", "x * x.shape[0] ** -0.5", "x * x.shape[0] ** -0.25", {}),
    ("a scale by a power in place of a root", "x / math.sqrt(x.shape[0])", "x * x.shape[0] ** -0.5", {}),
    ("a square of the size", "x * x.shape[0] ** 2", "x * x.shape[0] ** 3", {}),
    ("a square as a product", "x * x.shape[0] ** 2", "x * (x.shape[0] * x.shape[0])", {}),
    ("float of the size and of one more", "x * float(x.shape[0])", "x * float(x.shape[0] + 1)", {}),
    ("float of the size or not", "x * float(x.shape[0])", "x * x.shape[0]", {}),
    ("an integer tensor times a float of the size", "x.long() * float(x.shape[0])", "x.long() * x.shape[0]", {}),
    ("a logarithm of the size has another base", "x * math.log2(x.shape[0])", "x * math.log(x.shape[0])", {"ds": _AUTO}),
    ("a quotient is a floor now", "x * (x.shape[0] / 4)", "x * (x.shape[0] // 4)", {}),
    ("a remainder has another divisor", "x * (x.shape[0] % 5)", "x * (x.shape[0] % 4 - 1)", {}),
    ("divmod in place of // and %", "x * (x.shape[0] // 4) + x.shape[0] % 4", "q, r = divmod(x.shape[0], 4)\nreturn x * q + r", {}),
    ("the absolute value of a difference", "x * abs(x.shape[0] - 3)", "x * abs(x.shape[0] - 9)", {"ds": _AUTO}),
    ("a limited size by min", "x[: min(x.shape[0], 10)]", "x[: min(x.shape[0], 12)]", {"ds": _AUTO}),
    ("a limited size by sym_min", "torch.ones(torch.sym_min(x.shape[0], 10)), x + 1", "torch.ones(torch.sym_min(x.shape[0], 12)), x + 1", {}),
    ("a maximum of two sizes", "torch.ones(torch.sym_max(x.shape[0], x.shape[1])), x + 1", "torch.ones(torch.sym_max(x.shape[1], x.shape[0])), x + 1", {"ds": "({0: Dim('n', max=64), 1: Dim('m', max=64)},)"}),
    ("a sum of the shape in place of a product", "x * sum(x.shape)", "x * math.prod(x.shape)", {}),
    ("a product of the shape in place of numel", "x * math.prod(x.shape)", "x * x.numel()", {}),
    ("the last size in place of the first, of a square example", "x * x.shape[0]", "x * x.shape[-1]", {"args": "(torch.ones(5, 5),)", "ds": "({0: Dim('n', max=64), 1: Dim('m', max=64)},)"}),
    ("the last size in place of the first, where both are static", "x * x.shape[0]", "x * x.shape[-1]", {"args": "(torch.ones(5, 5),)", "ds": "None", "harmless": True}),
    ("a static size in place of its number", "x / 4 ** 0.5", "x / x.shape[1] ** 0.5", {"harmless": True}),
    ("a static size by another method", "x / x.size(1)", "x / x.shape[-1]", {"harmless": True}),
    ("a dynamic size by another method", "x / x.size(0)", "b, *_ = x.shape\nreturn x / b", {"harmless": True}),
    ("a padding to a multiple of 8 in place of 4", "F.pad(x, (0, 0, 0, -x.shape[0] % 4))", "F.pad(x, (0, 0, 0, -x.shape[0] % 8))", {"ds": _AUTO}),
    ("a padding to a multiple, written with a floor", "F.pad(x, (0, 0, 0, -x.shape[0] % 4))", "F.pad(x, (0, 0, 0, (x.shape[0] + 3) // 4 * 4 - x.shape[0]))", {"ds": _AUTO}),
    ("a padding to a length", "F.pad(x, (0, 0, 0, 64 - x.shape[0]))", "F.pad(x, (0, 0, 0, 65 - x.shape[0]))", {}),
    ("a padding on the other side", "F.pad(x, (0, 0, 0, 64 - x.shape[0]))", "F.pad(x, (0, 0, 64 - x.shape[0], 0))", {}),
    ("a padding's value", "F.pad(x, (0, 0, 0, 64 - x.shape[0]))", "F.pad(x, (0, 0, 0, 64 - x.shape[0]), value=1.0)", {}),
    ("a tensor of the sizes", "x * torch.tensor(x.shape[0])", "x * torch.tensor(x.shape[0] + 1)", {}),
    ("a tensor of both sizes", "x.sum() * torch.tensor([x.shape[0], x.shape[1]])", "x.sum() * torch.tensor([x.shape[1], x.shape[0]])", {}),
    ("a tensor of the shape as floats", "x.sum() * torch.tensor(x.shape, dtype=torch.float32)", "x.sum() * torch.tensor(x.shape, dtype=torch.float64)", {}),
    ("a full tensor of the size", "x + torch.full((4,), x.shape[0])", "x + torch.full((4,), x.shape[0] * 1.0)", {}),
    ("a linspace to the size", "x + torch.linspace(0, 1, x.shape[0])[:, None]", "x + torch.linspace(0, 2, x.shape[0])[:, None]", {}),
    ("a linspace whose end is the size", "x + torch.linspace(0, x.shape[0], x.shape[0])[:, None]", "x + torch.linspace(0, x.shape[0] - 1, x.shape[0])[:, None]", {}),
    ("an arange's step", "torch.arange(0, x.shape[0], 2), x * 2", "torch.arange(0, x.shape[0], 3), x * 2", {}),
    ("an arange's start", "torch.arange(1, x.shape[0] + 1), x * 2", "torch.arange(0, x.shape[0]), x * 2", {}),
    ("an arange's dtype", "torch.arange(x.shape[0]), x * 2", "torch.arange(x.shape[0], dtype=torch.int32), x * 2", {}),
    ("an arange's end is a float", "x + torch.arange(x.shape[0])[:, None]", "x + torch.arange(float(x.shape[0]))[:, None]", {}),
):
    _edit(f"arithmetic: {_doc}", _old, _new, **{"ds": _AUTO, **_more})

# 3. Branches on sizes, limits and checks.

_AB = "({0: Dim.AUTO, 1: Dim.AUTO},)"
for _doc, _old, _new, _more in (
    ("a short path for up to 4 rows has another limit", "self.lin(x) if x.shape[0] > 4 else x", "self.lin(x) if x.shape[0] > 5 else x", {}),
    ("a limit is counted in elements", "self.lin(x) if x.shape[0] > 4 else x", "self.lin(x) if x.numel() > 16 else x", {}),
    ("a limit is counted in elements, and is another", "self.lin(x) if x.numel() > 16 else x", "self.lin(x) if x.numel() > 12 else x", {}),
    ("a limit is included", "self.lin(x) if x.shape[0] > 4 else x", "self.lin(x) if x.shape[0] >= 4 else x", {}),
    ("a limit is written with the sides exchanged", "self.lin(x) if x.shape[0] > 4 else x", "self.lin(x) if 4 < x.shape[0] else x", {}),
    ("a limit of both sides", "self.lin(x) if 2 < x.shape[0] < 40 else x", "self.lin(x) if 2 < x.shape[0] < 50 else x", {}),
    ("a limit of an or that comes second", "self.lin(x) if x.shape[0] > 4 or x.shape[0] < 2 else x", "self.lin(x) if x.shape[0] > 4 or x.shape[0] < 3 else x", {}),
    ("the rows are even", "self.lin(x) if x.shape[0] % 2 == 0 else x", "self.lin(x) if x.shape[0] % 3 == 0 else x", {}),
    ("the rows are even and a multiple of 3", "self.lin(x) if x.shape[0] % 2 == 0 else x", "self.lin(x) if x.shape[0] % 6 == 0 else x", {}),
    ("a batch of one is treated alone", "self.lin(x)", "x if x.shape[0] == 1 else self.lin(x)", {}),
    ("an empty batch is treated alone", "self.lin(x)", "x if x.shape[0] == 0 else self.lin(x)", {}),
    ("a batch of 17 is treated alone", "self.lin(x)", "x if x.shape[0] == 17 else self.lin(x)", {}),
    ("a list of sizes that are treated alone", "x if x.shape[0] in (7, 8) else self.lin(x)", "x if x.shape[0] in (7, 9) else self.lin(x)", {}),
    ("a range of sizes", "self.lin(x) if x.shape[0] in range(1, 50) else x", "self.lin(x) if x.shape[0] in range(1, 60) else x", {}),
    ("the branch is of the other size", "self.lin(x[:, :4]) if x.shape[0] > 3 else x", "self.lin(x[:, :4]) if x.shape[1] > 3 else x", {"args": "(torch.ones(6, 6),)", "ds": _AB}),
    ("tall or not", "self.lin(x[:, :4]) if x.shape[0] >= x.shape[1] else x", "self.lin(x[:, :4]) if x.shape[0] > x.shape[1] else x", {"args": "(torch.ones(7, 6),)", "ds": _AB}),
    ("tall by a factor", "self.lin(x[:, :4]) if x.shape[0] < 2 * x.shape[1] else x", "self.lin(x[:, :4]) if x.shape[0] < 3 * x.shape[1] else x", {"args": "(torch.ones(7, 6),)", "ds": _AB}),
    ("the product of both sizes has a limit", "self.lin(x[:, :4]) if x.shape[0] * x.shape[1] < 1000 else x", "self.lin(x[:, :4]) if x.shape[0] * x.shape[1] < 2000 else x", {"args": "(torch.ones(7, 6),)", "ds": _AB}),
    ("the larger of both sizes has a limit", "self.lin(x[:, :4]) if max(x.shape) < 100 else x", "self.lin(x[:, :4]) if max(x.shape) < 200 else x", {"args": "(torch.ones(7, 6),)", "ds": _AB}),
    ("the sizes are sorted", "x * sorted(x.shape)[0]", "x * sorted(x.shape)[1]", {"args": "(torch.ones(7, 6),)", "ds": _AB}),
    ("torch._check of a maximum", "torch._check(x.shape[0] <= 40)\nreturn self.lin(x)", "torch._check(x.shape[0] <= 50)\nreturn self.lin(x)", {}),
    ("torch._check is added", "return self.lin(x)", "torch._check(x.shape[0] <= 50)\nreturn self.lin(x)", {}),
    ("torch._check is removed", "torch._check(x.shape[0] >= 3)\nreturn self.lin(x)", "return self.lin(x)", {}),
    ("torch._check of a multiple", "torch._check(x.shape[0] % 2 == 0)\nreturn self.lin(x)", "torch._check(x.shape[0] % 3 == 0)\nreturn self.lin(x)", {}),
    ("torch._check of the product", "torch._check(x.shape[0] * x.shape[1] < 1000)\nreturn x * 2", "torch._check(x.shape[0] * x.shape[1] < 1001)\nreturn x * 2", {"ds": _AB}),
    ("torch._check has another message", "torch._check(x.shape[0] <= 40, lambda: 'too many')\nreturn self.lin(x)", "torch._check(x.shape[0] <= 40, lambda: 'too many rows')\nreturn self.lin(x)", {"harmless": True}),
    ("torch._check of what is known", "torch._check(x.shape[0] >= 1)\nreturn self.lin(x)", "torch._check(x.shape[0] < 65)\nreturn self.lin(x)", {"ds": _NAMED, "harmless": True}),
    ("an assert of a maximum", "assert x.shape[0] <= 40\nreturn self.lin(x)", "assert x.shape[0] <= 41\nreturn self.lin(x)", {}),
    ("an assert of the rank", "assert x.dim() == 2\nreturn self.lin(x)", "assert x.ndim in (2, 3)\nreturn self.lin(x)", {"harmless": True}),
    ("an assert of the features", "assert x.shape[1] == 4\nreturn self.lin(x)", "assert x.shape[-1] == self.lin.in_features\nreturn self.lin(x)", {"harmless": True}),
    ("an error for long inputs is raised later", "if x.shape[0] > 512:\n    raise ValueError(x.shape)\nreturn self.lin(x)", "if x.shape[0] > 1024:\n    raise ValueError(x.shape)\nreturn self.lin(x)", {}),
    ("an error for long inputs that the range excludes", "if x.shape[0] > 512:\n    raise ValueError(x.shape)\nreturn self.lin(x)", "if x.shape[0] > 1024:\n    raise ValueError(x.shape)\nreturn self.lin(x)", {"ds": _NAMED, "harmless": True}),
    ("a warning for long inputs", "return self.lin(x)", "if x.shape[0] > 512:\n    import warnings\n    warnings.warn('long')\nreturn self.lin(x)", {}),
    ("statically_known_true of another limit", "self.lin(x) if statically_known_true(x.shape[0] < 100) else x", "self.lin(x) if statically_known_true(x.shape[0] < 50) else x", {"ds": _NAMED, "top": "from torch.fx.experimental.symbolic_shapes import statically_known_true"}),
    ("statically_known_true of another limit with the same answer", "self.lin(x) if statically_known_true(x.shape[0] < 100) else x", "self.lin(x) if statically_known_true(x.shape[0] < 90) else x", {"ds": _NAMED, "top": "from torch.fx.experimental.symbolic_shapes import statically_known_true", "harmless": True}),
    ("guard_or_false of another limit", "self.lin(x) if guard_or_false(x.shape[0] < 100) else x", "self.lin(x) if guard_or_false(x.shape[0] < 50) else x", {"top": "from torch.fx.experimental.symbolic_shapes import guard_or_false"}),
    ("a size's hint is the scale", "x * x.shape[0].node.hint", "x * (x.shape[0].node.hint + 1)", {}),
    ("whether a size is symbolic", "x * (2.0 if isinstance(x.shape[0], torch.SymInt) else 3.0)", "x * (2.0 if isinstance(x.shape[1], torch.SymInt) else 3.0)", {}),
    ("len in place of shape", "x * x.shape[0]", "x * len(x)", {}),
    ("rows in a Python loop", "torch.stack([row * 2 for row in x])", "torch.stack([row * 3 for row in x])", {}),
    ("rows in a Python loop in place of an operator", "x * 2", "torch.stack([row * 2 for row in x])", {}),
    ("columns in a Python loop", "torch.stack([x[:, i] * i for i in range(x.shape[1])], 1)", "torch.stack([x[:, i] * (i + 1) for i in range(x.shape[1])], 1)", {}),
    ("columns in a Python loop by unbind", "torch.stack([x[:, i] * i for i in range(x.shape[1])], 1)", "torch.stack([c * i for i, c in enumerate(x.unbind(1))], 1)", {}),
    ("a list multiplied by the size", "x * len([0] * x.shape[0])", "x * len([0] * (x.shape[0] + 1))", {}),
    ("an int of the size", "x * 2", "x * (int(x.shape[0]) / 3)", {}),
    ("a size as the key of a cache", "x * CACHE.setdefault(x.shape[1], 2)", "x * CACHE.setdefault(x.shape[0], 2)", {"top": "CACHE = {}"}),
    ("bit tricks for the next power of two", "x * 2 ** (x.shape[0] - 1).bit_length()", "x * 2 ** x.shape[0].bit_length()", {}),
    ("a bit of the size", "x * (x.shape[0] & 3)", "x * (x.shape[0] & 7)", {}),
    ("a shift of the size", "x * (x.shape[0] << 1)", "x * (x.shape[0] << 2)", {}),
    ("a boolean of a size in arithmetic", "x * (x.shape[0] > 3)", "x * (x.shape[0] > 4)", {}),
    ("a conditional of sizes by sym_ite", "x * torch.sym_ite(x.shape[0] > 3, 2, 3)", "x * torch.sym_ite(x.shape[0] > 4, 2, 3)", {}),
):
    _edit(f"branch: {_doc}", _old, _new, **{"ds": _AUTO, **_more})

# 4. A number from outside decides: attributes, files, variables and default arguments.

_JSON = "--- limits.json\n{\"limit\": 4, \"window\": 2}\n"
for _doc, _forward, _change, _to, _more in (
    ("the limit of a branch is an attribute", "self.lin(x) if x.shape[0] > self.k else x", "model.k = 5", (), {"ds": _AUTO}),
    ("the limit of a branch is an attribute and stays below the minimum", "self.lin(x) if x.shape[0] >= self.k else x", "model.k = 3", (), {"ds": "({0: Dim('n', min=4, max=64)},)", "harmless": True}),
    ("the limit of a branch with a named Dim leaves the range", "self.lin(x) if x.shape[0] >= self.k else x", "model.k = 5", (), {"ds": "({0: Dim('n', min=4, max=64)},)"}),
    ("the maximal length of a table is an attribute", "x + self.table[: x.shape[0]]", "model.table = torch.zeros(80, 4)", (), {}),
    ("the maximal length of a table is a parameter's", "x + self.emb.weight[: x.shape[0]]", "model.emb = torch.nn.Embedding(80, 4)", (), {"live": False}),
    ("the table is retrained", "x + self.emb.weight[: x.shape[0]]", "model.emb.weight.data.add_(1)", (), {"harmless": True}),
    ("the table starts at an offset", "x + self.table[self.k: x.shape[0] + self.k]", "model.k = 5", (), {}),
    ("an attention window is an attribute", "i = torch.arange(x.shape[0])\nreturn x.t() @ ((i[None] - i[:, None]).abs() <= self.k).float()", "model.k = 3", (), {}),
    ("a window is a chunk's size", "x.split(self.k)[0]", "model.k = 3", (), {"ds": _AUTO}),
    ("a count of chunks", "x.chunk(self.k, 1)[-1]", "model.k = 2", (), {}),
    ("a count of repeats", "x.repeat(self.k, 1)", "model.k = 3", (), {}),
    ("a factor of an expand", "x[None].expand(self.k, -1, -1)", "model.k = 3", (), {}),
    ("a number of experts in topk", "x.topk(self.k, 1)[0]", "model.k = 3", (), {}),
    ("a share of the rows in topk", "x.topk(x.shape[0] // self.k, 0)[0]", "model.k = 3", (), {"ds": _AUTO, "init": "self.k = 2"}),
    ("a group's size of a view", "x.view(x.shape[0], -1, self.k).sum(-1)", "model.k = 2", (), {}),
    ("a group's size of the rows", "x.view(-1, self.k, 4).sum(1)", "model.k = 3", (), {"ds": _AUTO, "init": "self.k = 2"}),
    ("a stride of a slice", "x[:: self.k]", "model.k = 3", (), {"ds": _AUTO, "init": "self.k = 2"}),
    ("a shift of a roll", "x.roll(self.k, 0)", "model.k = 3", (), {}),
    ("a diagonal of a mask", "torch.ones(x.shape[0], x.shape[0]).tril(self.k) @ x", "model.k = 3", (), {}),
    ("a window of an unfold", "x.unfold(0, self.k, 1).sum(-1)", "model.k = 3", (), {"ds": _AUTO, "init": "self.k = 2"}),
    ("a step of an unfold", "x.unfold(0, 2, self.k).sum(-1)", "model.k = 3", (), {"ds": _AUTO, "init": "self.k = 2"}),
    ("a slice ends at a constant that is shorter than the example", "x[: self.k]", "model.k = 5", (), {"ds": _AUTO}),
    ("a slice ends at a constant that is longer than the example", "x[: self.k]", "model.k = 51", (), {"ds": _AUTO, "init": "self.k = 50"}),
    ("a slice's constants are on both sides of the example", "x[: self.k]", "model.k = 50", (), {"ds": _AUTO}),
    ("a slice begins at a constant from the end", "x[-self.k:]", "model.k = 5", (), {"ds": _AUTO}),
    ("an index of a row", "x[self.k]", "model.k = 5", (), {"ds": _AUTO}),
    ("a narrow's length", "x.narrow(0, 0, self.k)", "model.k = 5", (), {"ds": _AUTO}),
    ("the factor of a size comes from the environment", "x * (x.shape[0] + int(os.environ.get('EXTRA', '1')))", "", (), {"env": {"EXTRA": "2"}}),
    ("a limit comes from the environment", "self.lin(x) if x.shape[0] < int(os.environ.get('LIMIT', '100')) else x", "", (), {"env": {"LIMIT": "200"}, "ds": _AUTO}),
    ("a limit comes from the environment and is far above the range", "self.lin(x) if x.shape[0] < int(os.environ.get('LIMIT', '100')) else x", "", (), {"env": {"LIMIT": "200"}, "harmless": True}),
    ("a limit in a file", "self.lin(x) if x.shape[0] > LIMITS['limit'] else x", "", (('"limit": 4', '"limit": 3'),), {"ds": _AUTO, "file": _JSON}),
    ("a window in a file", "x[: x.shape[0] - LIMITS['window']]", "", (('"window": 2', '"window": 3'),), {"file": _JSON, "ds": _AUTO}),
    ("a number in a file that is not used", "x[: x.shape[0] - LIMITS['window']]", "", (('"limit": 4', '"limit": 3'),), {"file": _JSON, "ds": _AUTO, "harmless": True}),
    ("a default argument is a slice's end", "x[: x.shape[0] - k]", "", (("k=2", "k=3"),), {"sig": "x, k=2", "ds": _AUTO}),
    ("a default argument is a size of a view", "x.view(-1, k)", "", (("k=2", "k=8"),), {"sig": "x, k=2", "ds": "({0: Dim.AUTO},)"}),
    ("a helper's keyword default", "pad(x)", "app.pad.__kwdefaults__['to'] = 8", (), {"top": "def pad(x, *, to=4):\n    return F.pad(x, (0, 0, 0, -x.shape[0] % to))", "ds": _AUTO}),
    ("a partial's keyword", "CUT(x)", "CUT = app.CUT = functools.partial(app.cut, by=3)", (), {"top": "import functools\ndef cut(x, by):\n    return x[: x.shape[0] - by]\nCUT = functools.partial(cut, by=2)", "before": "import functools\n", "ds": _AUTO}),
    ("a lambda in an attribute computes the size", "x[: self.cut(x.shape[0])]", "model.cut = lambda n: n // 2 + 1", (), {"ds": _AUTO, "init": "self.cut = lambda n: n // 2"}),
    ("a lambda in an attribute computes the same size", "x[: self.cut(x.shape[0])]", "model.cut = lambda m: m // 2", (), {"ds": _AUTO, "init": "self.cut = lambda n: n // 2", "harmless": True}),
    ("a property computes the limit", "x[: x.shape[0] - self.lag]", "model.k = 5", (), {"more": "@property\ndef lag(self):\n    return self.k - 3", "ds": _AUTO}),
    ("the example's number in a cached function", "x * scale(x.shape[1])", "app.BY[0] = 3\napp.scale.cache_clear()", (), {"top": "import functools\nBY = [2]\n@functools.lru_cache\ndef scale(n):\n    return BY[0] * n"}),
    ("a cached mask of static length", "x * mask(x.shape[1])", "app.BY[0] = 3\napp.mask.cache_clear()", (), {"top": "import functools\nBY = [2]\n@functools.lru_cache\ndef mask(n):\n    return torch.arange(n) < BY[0]"}),
    ("a table that grows with the longest input", "if x.shape[0] > self.seen:\n    self.seen = 2 * x.shape[0]\nreturn x * (2.0 if self.seen > 5 else 3.0)", "model.seen = 7", (), {"init": "self.seen = 4", "ds": _AUTO}),
):
    _more = dict(_more)
    _file, _meth = _more.pop("file", ""), _more.pop("more", "")
    _top = "import os\n" + _more.pop("top", "") + ("\nimport json, pathlib\nLIMITS = json.loads(pathlib.Path(__file__).with_name('limits.json').read_text())" if _file else "")
    _init = "self.k = 4\nself.table = torch.zeros(100, 4)\nself.emb = nn.Embedding(100, 4)\n" + _more.pop("init", "")
    if _meth or _file:
        _first = f"{_FROM}args = ({_X},)\ndynamic_shapes = {_more.pop('ds', _NAMED)}\n"
        _add(f"settings: {_doc}", _model(_forward, _init, "import math\n" + _top, _meth) + _file, _change, *_to, first=_first, **_more)
    else:
        _s(f"settings: {_doc}", _forward, _change, *_to, init=_init, top=_top, **_more)

# 5. Floats made of sizes: their constants have all digits.

_DOUBLE = "(torch.arange(24.0, dtype=torch.float64).reshape(6, 4) / 7,)"
for _doc, _old, _new, _more in (
    ("a factor of 0.3 is written as 0.1 + 0.2", "x * (x.shape[0] * 0.3)", "x * (x.shape[0] * (0.1 + 0.2))", {}),
    ("a third with 15 digits", "x * (x.shape[0] * (1 / 3))", "x * (x.shape[0] * 0.333333333333333)", {}),
    ("a third with 16 digits", "x * (x.shape[0] * (1 / 3))", "x * (x.shape[0] * 0.3333333333333333)", {"harmless": True}),
    ("a division in place of a product with the inverse", "x * (x.shape[0] / 3)", "x * (x.shape[0] * (1 / 3))", {}),
    ("an epsilon in the 16th digit", "x / (x.shape[0] + 1e-15)", "x / (x.shape[0] + 1.0000000000000002e-15)", {}),
    ("a large constant with one digit more", "x * (x.shape[0] + 1e16)", "x * (x.shape[0] + 10000000000000002.0)", {}),
    ("a float offset of zero", "x * (x.shape[0] * 1.0)", "x * (x.shape[0] * 1.0 + 0.0)", {}),
    ("a product with 1.0 in place of sym_float", "x * (x.shape[0] * 1.0)", "x * torch.sym_float(x.shape[0])", {}),
    ("a float and an integer factor", "x * (x.shape[0] * 2.0)", "x * (x.shape[0] * 2)", {}),
    ("a root by torch", "x * torch.sym_sqrt(x.shape[0])", "x * torch.sym_sqrt(x.shape[0] + 1)", {}),
    ("a root by torch in place of a power", "x * torch.sym_sqrt(x.shape[0])", "x * x.shape[0] ** 0.5", {}),
    ("an inverse root in place of a quotient", "x * (1 / torch.sym_sqrt(x.shape[0]))", "x * x.shape[0] ** -0.5", {}),
    ("a quotient of two products, in another order", "x * (x.shape[0] * 0.1 * 3)", "x * (x.shape[0] * 3 * 0.1)", {}),
    ("a sum of floats in another order", "x * (x.shape[0] + 0.1 + 0.2)", "x * (x.shape[0] + (0.1 + 0.2))", {}),
    ("a sum of floats from the other end", "x * (x.shape[0] * 0.1 + 0.2 + 0.3)", "x * (0.3 + 0.2 + x.shape[0] * 0.1)", {}),
    ("a product of floats in another order", "x * (x.shape[0] * 0.1 * 0.3)", "x * (x.shape[0] * (0.1 * 0.3))", {}),
    ("a distributed factor", "x * ((x.shape[0] + 1) * 0.1)", "x * (x.shape[0] * 0.1 + 0.1)", {}),
    ("a distributed integer factor", "x * ((x.shape[0] + 1) * 2)", "x * (x.shape[0] * 2 + 2)", {}),
    ("a negative zero", "x * (x.shape[0] * 0.0)", "x * (x.shape[0] * -0.0)", {}),
    ("an integer size to a float power that is whole", "x * x.shape[0] ** 2.0", "x * x.shape[0] ** 2", {}),
    ("a size as the base and as the power", "x * 2 ** x.shape[0]", "x * 2.0 ** x.shape[0]", {}),
    ("a size as the power of another base", "x * 0.9 ** x.shape[0]", "x * 0.99 ** x.shape[0]", {}),
    ("ceil by negated floors", "x * -(-x.shape[0] // 4)", "x * ((x.shape[0] + 3) // 4)", {}),
    ("a floor by torch.sym_int", "x * torch.sym_int(x.shape[0] * 0.7)", "x * torch.sym_int(x.shape[0] * 0.71)", {}),
    ("a floor of a true quotient in place of //", "x * (x.shape[0] // 4)", "x * torch.sym_int(x.shape[0] / 4)", {}),
    ("a negative size by // and by a true quotient", "x * (-x.shape[0] // 4)", "x * torch.sym_int(-x.shape[0] / 4)", {}),
    ("a floor of floors", "x * (x.shape[0] // 2 // 3)", "x * (x.shape[0] // 6)", {}),
    ("a remainder of a multiple", "x * (2 * x.shape[0] % 6)", "x * (2 * (x.shape[0] % 3))", {}),
    ("a limit of a branch with many digits", "x if x.shape[0] * 0.3 < 5.1 else x * 2", "x if x.shape[0] * (0.1 + 0.2) < 5.1 else x * 2", {}),
    ("an interpolation's factor of a size", "F.interpolate(x[None], scale_factor=2.0)", "F.interpolate(x[None], scale_factor=2.5)", {"ds": "({1: Dim.AUTO},)", "args": "(torch.ones(3, 6, 4),)"}),
    ("an interpolation by a size in place of a factor", "F.interpolate(x, scale_factor=2.0)", "F.interpolate(x, size=x.shape[-1] * 2)", {"ds": "({2: Dim.AUTO},)", "args": "(torch.ones(3, 4, 6),)"}),
    ("an interpolation computes its factor again", "F.interpolate(x, scale_factor=1.5, mode='linear')", "F.interpolate(x, scale_factor=1.5, mode='linear', recompute_scale_factor=True)", {"ds": "({2: Dim.AUTO},)", "args": "(torch.ones(3, 4, 6),)"}),
    ("an attention's scale of a size", "F.scaled_dot_product_attention(x, x, x, scale=x.shape[0] ** -0.5)", "F.scaled_dot_product_attention(x, x, x, scale=x.shape[1] ** -0.5)", {}),
    ("an alpha of a sum is a size", "torch.add(x, x, alpha=x.shape[0])", "torch.add(x, x, alpha=x.shape[0] - 1)", {}),
    ("a clamp by sizes", "x.clamp(0, x.shape[0])", "x.clamp(0, x.shape[0] - 1)", {}),
    ("a fill by a size", "x.masked_fill(x > 3, x.shape[0])", "x.masked_fill(x > 3, -x.shape[0])", {}),
    ("a threshold by a size", "x > x.shape[0]", "x > x.shape[0] - 1", {}),
    ("a norm's order is a size", "x.norm(x.shape[1])", "x.norm(x.shape[1] - 1)", {}),
    ("a dropout of a size in evaluation", "F.dropout(x, 1 / x.shape[1], self.training)", "F.dropout(x, 2 / x.shape[1], self.training)", {"harmless": True}),
    ("a size is a result", "(x * 2, x.shape[0])", "(x * 2, x.shape[0] + 0)", {}),
    ("a size is a result and is one more", "(x * 2, x.shape[0])", "(x * 2, x.shape[0] + 1)", {}),
    ("a float of a size is a result", "(x * 2, x.shape[0] / 2)", "(x * 2, x.shape[0] * 0.5)", {}),
    ("a boolean of a size is a result", "(x * 2, x.shape[0] > 3)", "(x * 2, x.shape[0] > 4)", {}),
    ("a result's size is a result", "y = x.repeat(2, 1)\nreturn y, y.shape[0]", "y = x.repeat(2, 1)\nreturn y, 2 * x.shape[0]", {}),
    ("the whole shape is a result", "(x * 2, x.shape)", "(x * 2, tuple(x.shape))", {}),
):
    _edit(f"floats of sizes: {_doc}", _old, _new, **{"ds": _AUTO, "args": _DOUBLE, **_more})

# 6. Sizes that depend on values.

_I = "(torch.tensor([3, 1, 2, 0, 2, 5]),)"
_U = "x.max().item()"
for _doc, _old, _new, _more in (
    ("torch._check of a maximum of item()", f"n = {_U}\ntorch._check(n >= 0)\ntorch._check(n <= 100)\nreturn torch.zeros(n)", f"n = {_U}\ntorch._check(n >= 0)\ntorch._check(n <= 200)\nreturn torch.zeros(n)", {}),
    ("torch._check of a minimum of item()", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.zeros(n)", f"n = {_U}\ntorch._check(n >= 1)\nreturn torch.zeros(n)", {}),
    ("torch._check in two lines becomes one in another order", f"n = {_U}\ntorch._check(n >= 0)\ntorch._check(n <= 100)\nreturn torch.zeros(n)", f"n = {_U}\ntorch._check(n <= 100)\ntorch._check(n >= 0)\nreturn torch.zeros(n)", {}),
    ("a check of item() is added behind its use", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.zeros(n)", f"n = {_U}\ntorch._check(n >= 0)\ny = torch.zeros(n)\ntorch._check(n < 50)\nreturn y", {}),
    ("a check's message", f"n = {_U}\ntorch._check(n >= 0, lambda: 'negative')\nreturn torch.zeros(n)", f"n = {_U}\ntorch._check(n >= 0, lambda: 'below zero')\nreturn torch.zeros(n)", {}),
    ("_check_is_size in place of _check", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.zeros(n)", f"n = {_U}\ntorch._check_is_size(n)\nreturn torch.zeros(n)", {}),
    ("_check_is_size with a maximum", f"n = {_U}\ntorch._check_is_size(n)\nreturn torch.zeros(n)", f"n = {_U}\ntorch._check_is_size(n, max=100)\nreturn torch.zeros(n)", {}),
    ("a constraint of a range has another end", f"n = {_U}\ntorch.sym_constrain_range_for_size(n, min=2, max=50)\nreturn torch.zeros(n)", f"n = {_U}\ntorch.sym_constrain_range_for_size(n, min=2, max=60)\nreturn torch.zeros(n)", {}),
    ("item() of another element", "n = x[0].item()\ntorch._check(n >= 0)\nreturn torch.zeros(n)", "n = x[1].item()\ntorch._check(n >= 0)\nreturn torch.zeros(n)", {}),
    ("two items in another order", "a, b = x[0].item(), x[1].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\nreturn torch.zeros(a, b)", "b, a = x[1].item(), x[0].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\nreturn torch.zeros(a, b)", {}),
    ("two items exchange their places in the result", "a, b = x[0].item(), x[1].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\nreturn torch.zeros(a, b)", "a, b = x[0].item(), x[1].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\nreturn torch.zeros(b, a)", {}),
    ("a check relates two items", "a, b = x[0].item(), x[1].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\nreturn torch.zeros(a), torch.zeros(b)", "a, b = x[0].item(), x[1].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\ntorch._check(a >= b)\nreturn torch.zeros(a), torch.zeros(b)", {}),
    ("a check equates two items", "a, b = x[0].item(), x[4].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\nreturn torch.zeros(a), torch.zeros(b)", "a, b = x[2].item(), x[4].item()\ntorch._check(a >= 0)\ntorch._check(b >= 0)\ntorch._check(a == b)\nreturn torch.zeros(a), torch.zeros(b)", {}),
    ("item() is a factor with an offset", f"x * {_U}", f"x * ({_U} + 1)", {}),
    ("item() is a float now", f"x * {_U}", f"x * float({_U})", {}),
    ("item() of a float tensor", "x.float().mean().item() * x", "x.float().mean().item() * 2 * x", {}),
    ("item() twice in place of once", "n = x.sum().item()\nreturn x * n * n", "return x * x.sum().item() * x.sum().item()", {}),
    ("item() that is not used", "x * 2", "x.sum().item()\nreturn x * 2", {}),
    ("a slice's end is a value", "n = x[0].item()\ntorch._check(n >= 0)\ntorch._check(n <= x.shape[0])\nreturn x[:n]", "n = x[0].item()\ntorch._check(n >= 0)\ntorch._check(n <= x.shape[0])\nreturn x[: n + 1]", {}),
    ("a slice's start is a value", "n = x[0].item()\ntorch._check(n >= 0)\ntorch._check(n <= x.shape[0])\nreturn x[:n]", "n = x[0].item()\ntorch._check(n >= 0)\ntorch._check(n <= x.shape[0])\nreturn x[n:]", {}),
    ("a narrow by a value", "n = x[0].item()\ntorch._check(n >= 0)\ntorch._check(n + 2 <= 6)\nreturn x.narrow(0, n, 2)", "n = x[0].item()\ntorch._check(n >= 0)\ntorch._check(n + 3 <= 6)\nreturn x.narrow(0, n, 3)", {}),
    ("nonzero has another threshold", "(x > 1).nonzero()", "(x > 2).nonzero()", {}),
    ("nonzero as a tuple", "(x > 1).nonzero()", "(x > 1).nonzero(as_tuple=True)", {}),
    ("the number of nonzeros is a scale", "x * (x > 1).nonzero().shape[0]", "x * ((x > 1).nonzero().shape[0] + 1)", {}),
    ("the number of nonzeros is checked", "y = (x > 1).nonzero()\ntorch._check(y.shape[0] > 0)\nreturn y.sum(0)", "y = (x > 1).nonzero()\ntorch._check(y.shape[0] > 1)\nreturn y.sum(0)", {}),
    ("the number of nonzeros is limited", "y = (x > 1).nonzero()\ntorch._check(y.shape[0] < 10)\nreturn y.sum(0)", "y = (x > 1).nonzero()\ntorch._check(y.shape[0] < 9)\nreturn y.sum(0)", {}),
    ("two nonzeros of one size", "a, b = (x > 1).nonzero(), (x > 2).nonzero()\nreturn a * 2, b * 2", "a, b = (x > 1).nonzero(), (x > 1).nonzero()\ntorch._check(a.shape[0] == b.shape[0])\nreturn a * 2, b * 2", {}),
    ("masked_select's mask", "x.masked_select(x > 1) * 2", "x.masked_select(x >= 1) * 2", {}),
    ("boolean indexing in place of masked_select", "x.masked_select(x > 1) * 2", "x[x > 1] * 2", {}),
    ("a mask is written otherwise", "x[x > 1] * 2", "x[torch.gt(x, 1)] * 2", {"harmless": True}),
    ("boolean indexing of the complement", "x[x > 1] * 2", "x[~(x > 1)] * 2", {}),
    ("unique with counts", "x.unique()", "x.unique(return_counts=True)", {}),
    ("unique is not sorted", "x.unique()", "x.unique(sorted=False)", {}),
    ("unique_consecutive", "x.unique()", "x.unique_consecutive()", {}),
    ("repeat_interleave by the values", "x.repeat_interleave(x)", "x.repeat_interleave(x + 1)", {}),
    ("repeat_interleave with an output size", "x.repeat_interleave(x)", "x.repeat_interleave(x, output_size=13)", {}),
    ("repeat_interleave with another output size", "x.repeat_interleave(x, output_size=13)", "x.repeat_interleave(x, output_size=12)", {}),
    ("tolist of a part", "a, b = x[:2].tolist()\nreturn x * a + b", "a, b = x[1:3].tolist()\nreturn x * a + b", {}),
    ("tolist is reversed", "a, b = x[:2].tolist()\nreturn x * a + b", "b, a = x[:2].tolist()\nreturn x * a + b", {}),
    ("split by tolist", "s = x[:2].tolist()\n[torch._check(v >= 0) for v in s]\ntorch._check(s[0] + s[1] == 6)\nreturn x.split(s)[0]", "s = x[:2].tolist()\n[torch._check(v >= 0) for v in s]\ntorch._check(s[0] + s[1] == 6)\nreturn x.split(s)[1]", {"args": "(torch.tensor([4, 2, 1, 1, 1, 1]),)"}),
    ("the values of a constant are sizes", "a, b = torch.tensor([2, 4]).tolist()\nreturn x[:a], x[a:]", "a, b = torch.tensor([3, 3]).tolist()\nreturn x[:a], x[a:]", {}),
    ("item() of a constant", "x * torch.tensor(5).item()", "x * torch.tensor(6).item()", {}),
    ("item() of a constant in place of a number", "x * torch.tensor(5).item()", "x * 5", {}),
    ("item() of a computed constant", "x * torch.tensor([1, 5]).max().item()", "x * torch.tensor([1, 6]).max().item()", {}),
    ("item() of a new tensor", "x * torch.zeros(3).sum().item()", "x * torch.ones(3).sum().item()", {}),
    ("a constant's value decides a branch", "x * 2 if torch.tensor(5) > 4 else x", "x * 2 if torch.tensor(5) > 6 else x", {}),
    ("guard_or_false on a value", f"n = {_U}\nreturn x * 2 if guard_or_false(n > 3) else x", f"n = {_U}\nreturn x * 2 if guard_or_true(n > 3) else x", {"top": "from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true"}),
    ("a known relation of values decides", f"n = {_U}\ntorch._check(n > 3)\nreturn x * 2 if n > 2 else x", f"n = {_U}\ntorch._check(n > 3)\nreturn x * 2 if n > 1 else x", {"harmless": True}),
    ("a known relation of values decides otherwise", f"n = {_U}\ntorch._check(n > 3)\nreturn x * 2 if n > 2 else x", f"n = {_U}\ntorch._check(n > 2)\nreturn x * 2 if n > 2 else x", {}),
    ("a mask to a value's length", f"(torch.arange(6) < {_U}) * x", f"(torch.arange(6) <= {_U}) * x", {}),
    ("an arange to a value", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.arange(n)", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.arange(n + 1)", {}),
    ("a one_hot's classes by a value", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.eye(n + 1)[x]", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.eye(n + 2)[x]", {}),
    ("a view of a value's size", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.zeros(n, 4).view(-1)", f"n = {_U}\ntorch._check(n >= 0)\nreturn torch.zeros(n, 4).view(2, -1)", {}),
    ("bincount and histc", "torch.bincount(x)", "torch.bincount(x, minlength=3)", {}),
    ("an assert of values", "torch._assert_async((x >= 0).all(), 'negative')\nreturn x * 2", "torch._assert_async((x > -1).all(), 'negative')\nreturn x * 2", {}),
    ("an assert's text", "torch._assert_async((x >= 0).all(), 'negative')\nreturn x * 2", "torch._assert_async((x >= 0).all(), 'below zero')\nreturn x * 2", {}),
    ("an assert of values is removed", "torch._assert_async((x >= 0).all(), 'negative')\nreturn x * 2", "return x * 2", {}),
    ("torch._check of a tensor's value", "torch._check(x[0].item() < 10)\nreturn x * 2", "torch._check(x[0].item() < 11)\nreturn x * 2", {}),
    ("torch._check of another tensor's value", "torch._check(x[0].item() < 10)\nreturn x * 2", "torch._check(x[1].item() < 10)\nreturn x * 2", {}),
    ("torch._check of a float value", "torch._check(x.float().mean().item() < 10.5)\nreturn x * 2", "torch._check(x.float().mean().item() < 11.5)\nreturn x * 2", {}),
    ("torch._check of a sum of a value and a size", "n = x[0].item()\ntorch._check(n + x.shape[0] < 100)\nreturn x * n", "n = x[0].item()\ntorch._check(n + x.shape[0] < 101)\nreturn x * n", {"ds": _AUTO}),
    ("nonzero of dynamic rows", "(x > 1).nonzero() * x.shape[0]", "(x > 1).nonzero() + x.shape[0]", {"ds": _AUTO}),
    ("a selection of rows and a size", "y = x[x > 1]\nreturn y.sum() / y.shape[0]", "y = x[x > 1]\nreturn y.sum() / x.shape[0]", {"ds": _AUTO}),
    ("a selection of rows and a maximum of sizes", "y = x[x > 1]\nreturn y.sum() / torch.sym_max(y.shape[0], 1)", "y = x[x > 1]\nreturn y.sum() / torch.sym_max(y.shape[0], 2)", {"ds": _AUTO}),
):
    _edit(f"values: {_doc}", _old, _new, **{"ds": "None", "args": _I, **_more})
_s("values: the example has other values of the same size", "x[x > 1] * x.max().item()", "args = (torch.tensor([9, 8, 7, 6, 5, 4]),)", args=_I, ds="None", harmless=True)
_s("values: the example has values of another type", "x[x > 1] * x.max().item()", "args = (args[0].float(),)", args=_I, ds="None")
_s("values: the example has more values", "x[x > 1] * x.max().item()", "args = (torch.arange(7),)", args=_I, ds="None")
_s("values: a buffer of lengths has others", "a, b = self.sizes.tolist()\ntorch._check(a >= 0)\nreturn x[:a]", "model.sizes[0] = 3", args=_I, ds="None", init="self.register_buffer('sizes', torch.tensor([2, 4]))", harmless=True)
_s("values: a tensor of lengths that is no buffer has others", "a, b = self.sizes.tolist()\nreturn x * a + b", "model.sizes[0] = 3", args=_I, ds="None", init="self.sizes = torch.tensor([2, 4])")
_s("values: a non-persistent buffer of lengths has others", "a, b = self.sizes.tolist()\nreturn x * a + b", "model.sizes[0] = 3", args=_I, ds="None", init="self.register_buffer('sizes', torch.tensor([2, 4]), persistent=False)")
_s("values: a global tensor of lengths has others", "a, b = SIZES.tolist()\nreturn x * a + b", "app.SIZES[0] = 3", args=_I, ds="None", top="SIZES = torch.tensor([2, 4])")
_s("values: a limit of a value is an attribute", "n = x.max().item()\ntorch._check(n >= 0)\ntorch._check(n <= self.k)\nreturn torch.zeros(n)", "model.k = 90", args=_I, ds="None", init="self.k = 100")
_s("values: a limit of a value is a tensor's size", "n = x.max().item()\ntorch._check(n >= 0)\ntorch._check(n <= self.t.shape[0])\nreturn self.t[:n]", "model.t = torch.zeros(90)", args=_I, ds="None", init="self.t = torch.zeros(100)")

# 7. Layers on dynamic sizes.

_IMG, _IMGS = "(torch.ones(2, 3, 8, 8),)", "({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)"
_SEQ, _SEQS = "(torch.ones(2, 5, 4),)", "({0: Dim.AUTO, 1: Dim.AUTO},)"
_CONV = "self.conv = nn.Conv2d(3, 4, 3, stride=1, padding=1)\nself.pool = nn.AdaptiveAvgPool2d(1)\nself.up = nn.Upsample(scale_factor=2)\nself.bn = nn.BatchNorm2d(3)"
_RNN = "self.rnn = nn.LSTM(4, 6, batch_first=True)\nself.gru = nn.GRU(4, 6)\nself.att = nn.MultiheadAttention(4, 2, batch_first=True)\nself.norm = nn.LayerNorm(4)\nself.pos = nn.Parameter(torch.ones(32, 4))\nself.enc = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)"
for _doc, _forward, _change, _to, _more in (
    ("a convolution's stride", "self.conv(x)", "model.conv.stride = (2, 2)", (), {}),
    ("a convolution's padding", "self.conv(x)", "model.conv.padding = (0, 0)", (), {}),
    ("a convolution's padding is 'same'", "self.conv(x)", "model.conv = torch.nn.Conv2d(3, 4, 3, padding='same')", (), {"live": False}),
    ("a convolution's dilation", "self.conv(x)", "model.conv.dilation = (2, 2)", (), {}),
    ("a convolution is retrained", "self.conv(x)", "model.conv.weight.data.mul_(2)", (), {"harmless": True}),
    ("a convolution with the width static", "self.conv(x)", "dynamic_shapes = ({0: Dim.AUTO, 2: Dim.AUTO},)", (), {}),
    ("an image of another height", "self.conv(x).relu()", "args = (torch.ones(2, 3, 9, 8),)", (), {}),
    ("an image in channels_last", "self.conv(x).relu()", "args = (args[0].to(memory_format=torch.channels_last),)", (), {}),
    ("a batch of one image", "self.conv(x).relu()", "args = (torch.ones(1, 3, 8, 8),)", (), {}),
    ("an adaptive pooling's output", "self.pool(x)", "model.pool.output_size = 2", (), {}),
    ("an adaptive pooling's output with one None", "self.pool(x)", "model.pool.output_size = (1, None)", (), {}),
    ("an average pooling over all in place of an adaptive one", "self.pool(x)", "", ((_body("self.pool(x)"), _body("F.avg_pool2d(x, x.shape[2:])")),), {}),
    ("a mean in place of an adaptive pooling", "self.pool(x)", "", ((_body("self.pool(x)"), _body("x.mean((2, 3), keepdim=True)")),), {}),
    ("an upsampling's factor", "self.up(x)", "model.up.scale_factor = 3.0", (), {}),
    ("an upsampling's mode", "self.up(x)", "model.up.mode = 'bilinear'", (), {}),
    ("an upsampling's corners", "self.up(x)", "model.up.align_corners = False", (), {"init": _CONV + "\nself.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)"}),
    ("an upsampling to a size", "self.up(x)", "model.up.size, model.up.scale_factor = (16, 16), None", (), {}),
    ("a pooling's ceil_mode", "F.max_pool2d(x, 3, 2)", "", ((_body("F.max_pool2d(x, 3, 2)"), _body("F.max_pool2d(x, 3, 2, ceil_mode=True)")),), {}),
    ("a pooling's padding", "F.max_pool2d(x, 3, 2)", "", ((_body("F.max_pool2d(x, 3, 2)"), _body("F.max_pool2d(x, 3, 2, padding=1)")),), {}),
    ("patches of another size", "x.unfold(2, 4, 4).unfold(3, 4, 4).flatten(2)", "", (("unfold(3, 4, 4)", "unfold(3, 4, 2)"),), {"ds": "({0: Dim.AUTO},)"}),
    ("a pixel_shuffle's factor", "F.pixel_unshuffle(x, 2)", "", (("(x, 2)", "(x, 4)"),), {}),
    ("a flip's dim", "x.flip(2)", "", (("flip(2)", "flip(3)"),), {}),
    ("a flatten's start", "x.flatten(1)", "", (("flatten(1)", "flatten(2)"),), {}),
    ("a flatten by a view", "x.flatten(1)", "", (("x.flatten(1)", "x.view(x.shape[0], -1)"),), {}),
    ("a transposition of height and width", "x.transpose(2, 3)", "", (("x.transpose(2, 3)", "x.permute(0, 1, 2, 3)"),), {}),
    ("a grid of the height and of the width", "torch.meshgrid(torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing='ij')[0] + x.sum()", "", (("'ij'", "'xy'"),), {}),
    ("a grid that is normalized by the width", "x + torch.arange(x.shape[2])[:, None] / x.shape[2]", "", (("/ x.shape[2]", "/ x.shape[3]"),), {}),
    ("a batch norm in training mode", "self.bn(x)", "model.bn.train()", (), {}),
    ("a batch norm's epsilon", "self.bn(x)", "model.bn.eps = 1e-3", (), {}),
    ("a skip's crop to the smaller size", "y = self.up(x)\nreturn y[:, :, : x.shape[2], : x.shape[3]] + x", "", (("y[:, :, : x.shape[2], : x.shape[3]]", "y[:, :, -x.shape[2]:, : x.shape[3]]"),), {}),
    ("a window partition of another size", "b, c, h, w = x.shape\nreturn x.view(b, c, h // 2, 2, w // 2, 2).sum((3, 5))", "", (("h // 2, 2, w // 2, 2", "h // 4, 4, w // 2, 2"),), {}),
    ("a normalization over all of an image", "F.layer_norm(x, x.shape[2:])", "", (("x.shape[2:]", "x.shape[1:]"),), {}),
    ("an LSTM is bidirectional", "self.rnn(x)[0]", "model.rnn.bidirectional = True", (), {"seq": True}),
    ("an LSTM's last step", "self.rnn(x)[0][:, -1]", "", (("[:, -1]", "[:, 0]"),), {"seq": True}),
    ("an LSTM's steps are dynamic or static", "self.rnn(x)[0]", "dynamic_shapes = ({0: Dim.AUTO},)", (), {"seq": True, "ds": _SEQS}),
    ("an LSTM's hidden state by the batch", "h = x.new_zeros(1, x.shape[0], 6)\nreturn self.rnn(x, (h, h))[0]", "", (("new_zeros", "new_ones"),), {"seq": True}),
    ("an LSTM's hidden state is shared or not", "h = x.new_zeros(1, x.shape[0], 6)\nreturn self.rnn(x, (h, h))[0]", "", (("(h, h)", "(h, h + 0)"),), {"seq": True}),
    ("an LSTM's example has another batch", "self.rnn(x)[0]", "args = (torch.ones(3, 5, 4),)", (), {"seq": True}),
    ("an LSTM is retrained", "self.rnn(x)[0]", "[p.data.mul_(2) for p in model.rnn.parameters()]", (), {"seq": True, "harmless": True}),
    ("a GRU's batch is in the other dim", "self.gru(x)[0]", "model.gru.batch_first = True", (), {"seq": True}),
    ("a GRU over a dynamic number of steps", "self.gru(x)[0]", "args = (torch.ones(3, 5, 4),)", (), {"seq": True, "ds": "({1: Dim.AUTO},)"}),
    ("an attention is causal", "F.scaled_dot_product_attention(x, x, x)", "", (("(x, x, x)", "(x, x, x, is_causal=True)"),), {"seq": True, "ds": _SEQS}),
    ("a causal mask by triu", "n = x.shape[1]\nm = torch.ones(n, n).tril().bool()\nreturn F.scaled_dot_product_attention(x, x, x, m)", "", (("tril()", "tril(1)"),), {"seq": True, "ds": _SEQS}),
    ("a causal mask by positions", "i = torch.arange(x.shape[1])\nreturn F.scaled_dot_product_attention(x, x, x, i[None] <= i[:, None])", "", (("i[None] <= i[:, None]", "i[None] < i[:, None] + 1"),), {"seq": True, "ds": _SEQS}),
    ("an attention's heads", "self.att(x, x, x)[0]", "model.att.num_heads, model.att.head_dim = 1, 4", (), {"seq": True, "ds": _SEQS}),
    ("an attention without weights", "self.att(x, x, x)[0]", "", (("self.att(x, x, x)", "self.att(x, x, x, need_weights=False)"),), {"seq": True, "ds": _SEQS}),
    ("an attention's heads by a view", "b, n, c = x.shape\nreturn x.view(b, n, 2, c // 2).transpose(1, 2).reshape(b, -1)", "", (("x.view(b, n, 2, c // 2)", "x.view(b, n, c // 2, 2)"),), {"seq": True, "ds": _SEQS, "harmless": True}),
    ("an attention's heads by a view, where the split is another", "b, n, c = x.shape\nreturn x.view(b, n, 2, c // 2).transpose(1, 2).reshape(b, -1)", "", (("x.view(b, n, 2, c // 2)", "x.view(b, n, 4, c // 4)"),), {"seq": True, "ds": _SEQS}),
    ("positions are added from the end", "x + self.pos[: x.shape[1]]", "", (("self.pos[: x.shape[1]]", "self.pos[-x.shape[1]:]"),), {"seq": True, "ds": _SEQS}),
    ("rotary positions have another base", "f = 1 / B ** (torch.arange(0, 4, 2) / 4)\na = torch.arange(x.shape[1])[:, None] * f\nreturn x * torch.cat([a.cos(), a.sin()], -1)", "app.B = 500.0", (), {"seq": True, "ds": _SEQS, "top": "B = 10000.0"}),
    ("rotary positions are scaled above a length", "f = 1 / B ** (torch.arange(0, 4, 2) / 4)\nif x.shape[1] > L:\n    f = f / 2\na = torch.arange(x.shape[1])[:, None] * f\nreturn x * torch.cat([a.cos(), a.sin()], -1)", "app.L = 16", (), {"seq": True, "ds": _SEQS, "top": "B = 10000.0\nL = 8"}),
    ("an alibi slope by the distance", "i = torch.arange(x.shape[1])\nreturn (x @ x.transpose(1, 2) - S * (i[:, None] - i)).softmax(-1) @ x", "app.S = 0.25", (), {"seq": True, "ds": _SEQS, "top": "S = 0.5"}),
    ("a layer norm over the sequence too", "F.layer_norm(x, x.shape[2:])", "", (("x.shape[2:]", "x.shape[1:]"),), {"seq": True}),
    ("an einsum's letters", "torch.einsum('bnc,bmc->bnm', x, x)", "", (("bnc,bmc->bnm", "bnc,bmc->bmn"),), {"seq": True, "ds": _SEQS}),
    ("a bmm's transposition", "torch.bmm(x, x.transpose(1, 2))", "", (("x.transpose(1, 2)", "x.mT"),), {"seq": True, "ds": _SEQS}),
    ("a cumsum's mean by the positions", "x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]", "", (("arange(1, x.shape[1] + 1)", "arange(x.shape[1]).add(1)"),), {"seq": True, "ds": _SEQS}),
    ("a gather of the last position", "x.gather(1, torch.full((x.shape[0], 1, 4), x.shape[1] - 1))", "", (("x.shape[1] - 1)", "x.shape[1] - 2)"),), {"seq": True, "ds": _SEQS}),
    ("an index_select of every second", "x.index_select(1, torch.arange(0, x.shape[1], 2))", "", (("(0, x.shape[1], 2)", "(1, x.shape[1], 2)"),), {"seq": True, "ds": _SEQS}),
    ("a concatenation with a class token", "torch.cat([self.pos[:1].expand(x.shape[0], 1, 4), x], 1)", "", (("self.pos[:1].expand(x.shape[0], 1, 4), x", "x, self.pos[:1].expand(x.shape[0], 1, 4)"),), {"seq": True, "ds": _SEQS}),
    ("a concatenation along another dim", "torch.cat([x, x], 1)", "", (("[x, x], 1", "[x, x], 0"),), {"seq": True, "ds": _SEQS}),
    ("a stack along another dim", "torch.stack([x, x], 1)", "", (("[x, x], 1", "[x, x], 0"),), {"seq": True, "ds": _SEQS}),
    ("an encoder layer's norm comes first", "self.enc(x)", "model.enc.norm_first = True", (), {"seq": True, "ds": _SEQS}),
    ("an encoder layer's sequence is dynamic or not", "self.enc(x)", "dynamic_shapes = ({0: Dim.AUTO},)", (), {"seq": True, "ds": _SEQS}),
    ("an encoder layer is retrained", "self.enc(x)", "[p.data.mul_(2) for p in model.parameters()]", (), {"seq": True, "ds": _SEQS, "harmless": True}),
    ("an encoder layer gets an input of length 1", "self.enc(x)", "args = (torch.ones(2, 1, 4),)", (), {"seq": True, "ds": _SEQS}),
    ("an encoder layer gets an empty batch", "self.norm(x)", "args = (torch.ones(0, 5, 4),)", (), {"seq": True, "ds": _SEQS}),
    ("a mask of padding by lengths", "x * (torch.arange(x.shape[1]) < (x[:, :1, 0] + 2))[..., None]", "", (("+ 2", "+ 3"),), {"seq": True, "ds": _SEQS}),
    ("the mean of two dynamic dims", "x.sum((0, 1)) / (x.shape[0] * x.shape[1])", "", (("x.shape[0] * x.shape[1]", "x.shape[1] * x.shape[0]"),), {"seq": True, "ds": _SEQS}),
    ("a maximum of two dynamic dims, whose order is another", "x * torch.sym_max(x.shape[0], x.shape[1])", "", (("x.shape[0], x.shape[1]", "x.shape[1], x.shape[0]"),), {"seq": True, "ds": _SEQS}),
    ("a minimum with a constant, whose order is another", "torch.ones(torch.sym_min(x.shape[0], 7)), x + 1", "", (("x.shape[0], 7", "7, x.shape[0]"),), {"seq": True}),
    ("a comparison as a factor, whose sides are exchanged", "x * torch.sym_ite(x.shape[0] < x.shape[1], 2, 3)", "", (("x.shape[0] < x.shape[1]", "x.shape[1] > x.shape[0]"),), {"seq": True, "ds": _SEQS}),
    ("a conditional by its negation", "x * torch.sym_ite(x.shape[0] < 9, 2, 3)", "", (("x.shape[0] < 9, 2, 3", "torch.sym_not(x.shape[0] >= 9), 2, 3"),), {"seq": True}),
    ("a view of two merged dims and their inverse", "x.view(-1, 4).view(x.shape)", "", (("view(x.shape)", "view(x.shape[0], -1, 4)"),), {"seq": True, "ds": _SEQS}),
):
    _more = dict(_more)
    _seq = _more.pop("seq", False)
    _s(f"layers on sizes: {_doc}", _forward, _change, *_to, **{"ds": "({0: Dim.AUTO},)" if _seq else _IMGS, "args": _SEQ if _seq else _IMG, "init": _RNN if _seq else _CONV, **_more})

# 8. Arguments: their structure, numbers among them, and examples of other sizes.

_LINES = "self.lin2 = nn.Linear(4, 4)"
for _doc, _forward, _sig, _args, _ds, _change, _to, _more in (
    ("an integer argument is another", "x[: x.shape[0] - k]", "x, k", f"({_X}, 2)", "({0: Dim.AUTO}, None)", "args = (args[0], 3)", (), {}),
    ("an integer argument is dynamic and another", "x * k", "x, k", f"({_X}, 2)", "({0: Dim.AUTO}, Dim.DYNAMIC)", "args = (args[0], 3)", (), {}),
    ("an integer argument becomes dynamic", "x * k", "x, k", f"({_X}, 2)", "({0: Dim.AUTO}, None)", "dynamic_shapes = ({0: Dim.AUTO}, Dim.DYNAMIC)", (), {}),
    ("an integer argument becomes a float", "x * k", "x, k", f"({_X}, 2)", "({0: Dim.AUTO}, None)", "args = (args[0], 2.0)", (), {}),
    ("an integer argument becomes True", "x * k", "x, k", f"({_X}, 1)", "({0: Dim.AUTO}, None)", "args = (args[0], True)", (), {}),
    ("an argument that was omitted is given with its default", "x * k", "x, k=2", f"({_X},)", "({0: Dim.AUTO},)", "args, dynamic_shapes = (args[0], 2), ({0: Dim.AUTO}, None)", (), {}),
    ("a mask is given in place of None", "x if m is None else x * m", "x, m", f"({_X}, None)", "({0: Dim.AUTO}, None)", "args, dynamic_shapes = (args[0], torch.ones(6, 1)), ({0: Dim.AUTO}, {0: Dim.AUTO})", (), {}),
    ("None in place of a mask", "x if m is None else x * m", "x, m", f"({_X}, torch.ones(6, 1))", "({0: Dim.AUTO}, {0: Dim.AUTO})", "args, dynamic_shapes = (args[0], None), ({0: Dim.AUTO}, None)", (), {}),
    ("a list of tensors is a tuple", "v[0] * 2 + v[1].sum()", "v", f"([{_X}, torch.ones(3)],)", "([{0: Dim.AUTO}, None],)", "args = (tuple(args[0]),)\ndynamic_shapes = (({0: Dim.AUTO}, None),)", (), {}),
    ("a list of tensors has one more that is not used", "v[0] * 2", "v", f"([{_X}],)", "([{0: Dim.AUTO}],)", "args = ([args[0][0], torch.ones(3)],)\ndynamic_shapes = ([{0: Dim.AUTO}, None],)", (), {}),
    ("a list's tensors exchange their sizes", "v[0].sum() + v[1].sum()", "v", "([torch.ones(6, 4), torch.ones(5, 4)],)", "([{0: Dim.AUTO}, {0: Dim.AUTO}],)", "args = ([torch.ones(5, 4), torch.ones(6, 4)],)", (), {}),
    ("a list's second tensor is dynamic", "v[0].sum() + v[1].sum()", "v", "([torch.ones(6, 4), torch.ones(5, 4)],)", "([{0: Dim.AUTO}, None],)", "dynamic_shapes = ([None, {0: Dim.AUTO}],)", (), {}),
    ("a dict of tensors in another order", "d['a'] * 2 + d['b'].sum()", "d", f"(dict(a={_X}, b=torch.ones(3)),)", "({'a': {0: Dim.AUTO}, 'b': None},)", "args = (dict(b=torch.ones(3), a=args[0]['a']),)", (), {}),
    ("a dict's dims are for the other key", "d['a'] * 2 + d['b'].sum()", "d", "(dict(a=torch.ones(6, 4), b=torch.ones(6, 4)),)", "({'a': {0: Dim.AUTO}, 'b': None},)", "dynamic_shapes = ({'a': None, 'b': {0: Dim.AUTO}},)", (), {}),
    ("a dict's keys swap roles in forward", "d['a'] * d['b'].shape[0]", "d", "(dict(a=torch.ones(6, 4), b=torch.ones(6, 4)),)", "({'a': {0: Dim.AUTO}, 'b': {0: Dim.AUTO}},)", "", (("d['a'] * d['b'].shape[0]", "d['a'] * d['a'].shape[0]"),), {}),
    ("with equal sizes the other input's size is asked", "x * y.shape[0] + y.sum()", "x, y", _TWO, "(lambda n: ({0: n}, {0: n}))(Dim('n', max=9))", "", (("x * y.shape[0]", "x * x.shape[0]"),), {}),
    ("with equal sizes by an addition the other input's size is asked", "(x + y) * y.shape[0]", "x, y", _TWO, "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("* y.shape[0]", "* x.shape[0]"),), {}),
    ("with static sizes the other input's size is asked", "(x + y) * y.shape[0]", "x, y", _TWO, "None", "", (("* y.shape[0]", "* x.shape[0]"),), {"harmless": True}),
    ("a branch compares two inputs' rows", "x * 2 if x.shape[0] > y.shape[0] else x", "x, y", "(torch.ones(6, 4), torch.ones(5, 4))", "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("x.shape[0] > y.shape[0]", "x.shape[0] >= y.shape[0]"),), {}),
    ("a branch compares with twice the other rows", "x * 2 if x.shape[0] < 2 * y.shape[0] else x", "x, y", "(torch.ones(6, 4), torch.ones(5, 4))", "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("< 2 *", "< 3 *"),), {}),
    ("torch._check relates two inputs' rows", "torch._check(x.shape[0] <= y.shape[0] + 4)\nreturn x * 2, y", "x, y", "(torch.ones(6, 4), torch.ones(5, 4))", "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("+ 4", "+ 5"),), {}),
    ("two inputs' rows must be equal or not", "x.sum(0) + y.sum(0)", "x, y", _TWO, "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("return x.sum(0)", "torch._check(x.shape[0] == y.shape[0])\n        return x.sum(0)"),), {}),
    ("a broadcast makes two sizes equal", "x.sum(0) + y.sum(0)", "x, y", _TWO, "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("x.sum(0) + y.sum(0)", "(x + y).sum(0)"),), {}),
    ("a concatenation asks for equal columns", "torch.cat([x, y])", "x, y", _TWO, "({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO})", "", (("torch.cat([x, y])", "torch.cat([x, y], 1)"),), {}),
    ("two inputs change places in forward", "x * 2 + y.sum()", "x, y", _TWO, "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("x * 2 + y.sum()", "y * 2 + x.sum()"),), {}),
    ("the same tensor is given twice", "x.sum(0) + y.sum(0)", "x, y", _TWO, "({0: Dim.AUTO}, {0: Dim.AUTO})", "args = (args[0], args[0])", (), {}),
    ("the same tensor was given twice", "x.sum(0) + y.sum(0)", "x, y", "(torch.ones(6, 4),) * 2", "({0: Dim.AUTO}, {0: Dim.AUTO})", "args = (args[0], args[0] + 0)", (), {}),
    ("the second input is a view of the first", "x.sum(0) + y.sum(0)", "x, y", "(torch.ones(6, 4), torch.ones(3, 4))", "({0: Dim.AUTO}, {0: Dim.AUTO})", "args = (args[0], args[0][:3])", (), {}),
    ("the example's values are others", "self.lin(x)", "x", f"({_X},)", "({0: Dim.AUTO},)", "args = (args[0] * 3,)", (), {"harmless": True}),
    ("the example is a copy that requires gradients", "self.lin(x)", "x", f"({_X},)", "({0: Dim.AUTO},)", "args = (args[0].requires_grad_(),)", (), {}),
    ("the example has another batch, all named", "self.lin(x)", "x", f"({_X},)", "({0: Dim('n', max=64)},)", "args = (torch.ones(9, 4),)", (), {}),
    ("the example has another batch and the branch is the same", "self.lin(x) if x.shape[0] > 4 else x", "x", f"({_X},)", "({0: Dim.AUTO},)", "args = (torch.ones(9, 4),)", (), {}),
    ("the example has another batch and is on the other side", "self.lin(x) if x.shape[0] > 4 else x", "x", f"({_X},)", "({0: Dim.AUTO},)", "args = (torch.ones(3, 4),)", (), {}),
    ("the example is a multiple of another number", "x.view(-1, 2, 4) if x.shape[0] % 2 == 0 else x", "x", f"({_X},)", "({0: Dim.AUTO},)", "args = (torch.ones(7, 4),)", (), {}),
    ("the example has no row", "self.lin(x)", "x", f"({_X},)", "({0: Dim.AUTO},)", "args = (torch.ones(0, 4),)", (), {}),
    ("the example had no row", "self.lin(x)", "x", "(torch.ones(0, 4),)", "({0: Dim.AUTO},)", "args = (torch.ones(1, 4),)", (), {}),
    ("the example had one row and is retrained", "self.lin(x)", "x", "(torch.ones(1, 4),)", "({0: Dim.AUTO},)", "model.lin.weight.data.mul_(2)", (), {"harmless": True}),
    ("sizes of 0 and 1 are as others", "self.lin(x)", "x", f"({_X},)", "({0: Dim.AUTO},)", "import torch.fx.experimental._config as c\nc.backed_size_oblivious = True", (), {}),
    ("a transposed example of equal sizes", "self.lin(x)", "x", "(torch.ones(4, 4),)", "({0: Dim.AUTO},)", "args = (torch.ones(4, 4).t(),)", (), {}),
    ("keyword arguments in place of positions", "x * k", "x, k=None", f"({_X}, torch.ones(6, 1))", "{'x': {0: Dim.AUTO}, 'k': {0: Dim.AUTO}}", "args, kwargs = args[:1], {'k': args[1]}", (), {}),
    ("keyword arguments in another order", "a * 2 + b.sum()", "*, a, b", "()", "{'a': {0: Dim.AUTO}, 'b': None}", "kwargs = {'b': kwargs['b'], 'a': kwargs['a']}", (), {"before": f"kwargs = {{'a': {_X}, 'b': torch.ones(3)}}\n"}),
    ("another keyword argument by **kwargs", "x * sum(len(k) for k in kw)", "x, **kw", f"({_X},)", "None", "kwargs = {'much': torch.ones(3)}", (), {"before": "kwargs = {'more': torch.ones(3)}\n"}),
    ("one tensor more by *args", "sum(v.sum(0) for v in xs)", "*xs", _TWO, "(({0: Dim.AUTO}, {0: Dim.AUTO}),)", "args = (*args, torch.ones(6, 4))\ndynamic_shapes = (({0: Dim.AUTO},) * 3,)", (), {}),
    ("a second layer is used above a size", "self.lin2(x) if x.shape[0] > 10 else self.lin(x)", "x", f"({_X},)", "({0: Dim.AUTO},)", "", (("> 10", "> 12"),), {"init": _LINES}),
    ("a text argument chooses the reduction", "x.mean(0) if how == 'mean' else x.sum(0)", "x, how", f"({_X}, 'mean')", "({0: Dim.AUTO}, None)", "args = (args[0], 'sum')", (), {}),
    ("a tuple of integers as the output's size", "torch.zeros(hw) + x.sum()", "x, hw", f"({_X}, (8, 8))", "None", "args = (args[0], (8, 9))", (), {}),
    ("lengths are sizes of an embedding bag", "F.embedding_bag(x, self.lin.weight, o)", "x, o", "(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2]))", "({0: Dim.AUTO}, {0: Dim.AUTO})", "", (("self.lin.weight, o)", "self.lin.weight, o, mode='sum')"),), {}),
    ("a packed sequence's lengths are others", "nn.utils.rnn.pad_sequence(x.split(k))", "x, k", f"({_X}, (2, 4))", "None", "args = (args[0], (4, 2))", (), {}),
):
    _s(f"shapes of arguments: {_doc}", _forward, _change, *_to, sig=_sig, args=_args, ds=_ds, **_more)

# 9. Small transformers with a dynamic batch and a dynamic sequence.

_BERT = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20, max_position_embeddings=32))\n    def forward(self, ids, mask=None):\n        return self.net(ids, attention_mask=mask)[0]\n"
_GPT = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=32))\n    def forward(self, ids, mask=None):\n        return self.net(ids, attention_mask=mask, use_cache=False)[0]\n"
_IDS = f"{_FROM}args = (torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.long))\nkwargs, dynamic_shapes = {{}}, (({{0: Dim.AUTO, 1: Dim.AUTO}},) * 2)\n"
for _name, _code, _imported in (("BERT", _BERT, "BertConfig, BertModel"), ("GPT-2", _GPT, "GPT2Config, GPT2Model")):
    for _doc, _change, _to, _more in (
        ("weights are retrained", "[p.data.mul_(1.1) for p in model.parameters()]", (), {"harmless": True}),
        ("another example of the same sizes", "args = (args[0] * 2, args[1])", (), {"harmless": True}),
        ("the sequence is static", "dynamic_shapes = (({0: Dim.AUTO},) * 2)", (), {}),
        ("the sequence of the example is longer", "args = (torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long))", (), {}),
        ("the example is a batch of one", "args = (torch.ones(1, 5, dtype=torch.long), torch.ones(1, 5, dtype=torch.long))", (), {}),
        ("no mask", "args, dynamic_shapes = args[:1], dynamic_shapes[:1]", (), {}),
        ("the attention is eager", "model.net.config._attn_implementation = 'eager'", (), {}),
        ("a first position is kept", "", (("[0]\n", "[0][:, 0]\n"),), {}),
        ("a mean over the sequence", "", (("[0]\n", "[0].mean(1)\n"),), {}),
        ("the positions are a longer table", "", ((", max_position_embeddings=32" if _name == "BERT" else ", n_positions=32", ", max_position_embeddings=64" if _name == "BERT" else ", n_positions=64"),), {}),
    ):
        _add(f"{_name} with dynamic sizes: {_doc}", f"from transformers import {_imported}\n{_code}", _change, *_to, first=_IDS, **_more)

# 10. The same number by another expression: the program's nodes can be others, although the sizes are equal.

for _doc, _old, _new, _more in (
    ("a length scale of two terms becomes one", "x * (x.shape[0] * 0.1 + x.shape[0] * 0.2)", "x * (x.shape[0] * 0.3)", {}),
    ("a temperature of 0.7 becomes 0.7000000000000001", "x / (x.shape[0] * 0.7)", "x / (x.shape[0] * (0.1 * 7))", {}),
    ("a constant gets its 16th digit", "x * (x.shape[0] * 0.12345678901234567)", "x * (x.shape[0] * 0.12345678901234599)", {}),
    ("pi is written with 15 digits", "x * (x.shape[0] * math.pi)", "x * (x.shape[0] * 3.14159265358979)", {}),
    ("e is in the exponent with 15 digits", "x * math.e ** x.shape[0]", "x * 2.71828182845905 ** x.shape[0]", {}),
    ("an attribute's factor is computed in another way", "x * (x.shape[0] * (0.3 if K == 2 else 0.1 * 3))", "x * (x.shape[0] * (0.3 if K == 3 else 0.1 * 3))", {"top": "K = 2"}),
    ("a length of an interpolation by a long factor", "torch.ones(torch.sym_int(x.shape[0] * 1.1)), x + 1", "torch.ones(torch.sym_int(x.shape[0] * 1.1000000000000003)), x + 1", {}),
    ("a float factor on the other side", "x * (x.shape[0] * 0.5)", "x * (0.5 * x.shape[0])", {}),
    ("a float quotient in place of a product", "x * (x.shape[0] * 0.5)", "x * (x.shape[0] / 2.0)", {}),
    ("a product of float and of two sizes", "x * (x.shape[0] * 0.1 * x.shape[1])", "x * (x.shape[1] * 0.1 * x.shape[0])", {"ds": _AB}),
    ("a difference that is zero", "x + (x.shape[0] * 0.1 - x.shape[0] * 0.1)", "x + (x.shape[0] * 0.2 - x.shape[0] * 0.2)", {}),
    ("a subtraction of a float or of its negative", "x + (x.shape[0] - 0.1)", "x + (x.shape[0] + -0.1)", {}),
    ("an infinity by a product or a sum", "x.clamp(max=x.shape[0] * math.inf)", "x.clamp(max=x.shape[0] + math.inf)", {}),
    ("a size and 1e308", "x.clamp(max=x.shape[0] * 1e307)", "x.clamp(max=x.shape[0] * 1.0000000000000001e307)", {}),
    ("a size plus and minus one", "x * (x.shape[0] + 1 - 1)", "x * x.shape[0]", {}),
    ("twice the size divided by two", "x[: 2 * x.shape[0] // 2]", "x[: x.shape[0]]", {}),
    ("a size times one", "x.new_ones(x.shape[0] * 1)", "x.new_ones(x.shape[0])", {}),
    ("a size minus the other and plus it", "x * (x.shape[0] - x.shape[1] + x.shape[1])", "x * x.shape[0]", {"ds": _AB}),
    ("a product's order", "x.new_ones(x.shape[0] * x.shape[1])", "x.new_ones(x.shape[1] * x.shape[0])", {"ds": _AB}),
    ("a sum's order", "x.new_ones(x.shape[0] + x.shape[1])", "x.new_ones(x.shape[1] + x.shape[0])", {"ds": _AB}),
    ("a product's order as a factor", "x * (x.shape[0] * x.shape[1])", "x * (x.shape[1] * x.shape[0])", {"ds": _AB}),
    ("a square of a sum is multiplied out", "x * (x.shape[0] + 1) ** 2", "x * (x.shape[0] ** 2 + 2 * x.shape[0] + 1)", {}),
    ("a negated size twice", "x * -(-x.shape[0])", "x * x.shape[0]", {}),
    ("a maximum with a constant that the range implies", "x * torch.sym_max(x.shape[0], 0)", "x * x.shape[0]", {}),
    ("a maximum of a maximum", "x * torch.sym_max(torch.sym_max(x.shape[0], x.shape[1]), 7)", "x * torch.sym_max(x.shape[0], torch.sym_max(x.shape[1], 7))", {"ds": _AB}),
    ("a maximum of two maxima", "x * torch.sym_max(x.shape[0], 7)", "x * torch.sym_max(torch.sym_max(x.shape[0], 7), 5)", {}),
    ("a minimum's order of two sizes", "x * torch.sym_min(x.shape[0], x.shape[1])", "x * torch.sym_min(x.shape[1], x.shape[0])", {"ds": _AB}),
    ("a maximum is a negated minimum", "x * torch.sym_max(x.shape[0], x.shape[1])", "x * -torch.sym_min(-x.shape[0], -x.shape[1])", {"ds": _AB}),
    ("an equality's order is a result", "x * 2, x.shape[0] == x.shape[1]", "x * 2, x.shape[1] == x.shape[0]", {"ds": _AB}),
    ("a comparison's order is a result", "x * 2, x.shape[0] < x.shape[1]", "x * 2, x.shape[1] > x.shape[0]", {"ds": _AB}),
    ("a comparison by a difference is a result", "x * 2, x.shape[0] < x.shape[1]", "x * 2, x.shape[0] - x.shape[1] < 0", {"ds": _AB}),
    ("a strict comparison is a result", "x * 2, x.shape[0] > 3", "x * 2, x.shape[0] >= 4", {}),
    ("a multiple by a remainder is a result", "x * 2, x.shape[0] % 2 == 0", "x * 2, x.shape[0] // 2 * 2 == x.shape[0]", {}),
    ("a remainder by a difference", "x * (x.shape[0] % 4)", "x * (x.shape[0] - x.shape[0] // 4 * 4)", {}),
    ("a size of the result of an operation", "y = x.repeat(2, 1)\nreturn y * (x.shape[0] * 2)", "y = x.repeat(2, 1)\nreturn y * y.shape[0]", {}),
    ("a size of a slice", "y = x[1:]\nreturn y * (x.shape[0] - 1)", "y = x[1:]\nreturn y * y.shape[0]", {}),
    ("a size of a concatenation", "y = torch.cat([x, x])\nreturn y * (x.shape[0] + x.shape[0])", "y = torch.cat([x, x])\nreturn y * len(y.shape) * x.shape[0]", {}),
    ("a size of a padded tensor", "y = F.pad(x, (0, 0, 1, 1))\nreturn y / (x.shape[0] + 2)", "y = F.pad(x, (0, 0, 1, 1))\nreturn y / y.shape[0]", {}),
    ("a size of a convolution's result", "y = F.conv1d(x.t()[None], torch.ones(1, 4, 3), stride=2)\nreturn y / ((x.shape[0] - 3) // 2 + 1)", "y = F.conv1d(x.t()[None], torch.ones(1, 4, 3), stride=2)\nreturn y / y.shape[2]", {}),
    ("a size by a stride", "x * x.stride(0)", "x * x.shape[1]", {"ds": _AB}),
    ("a storage's number of elements", "x * x.numel()", "x * (x.stride(0) * x.shape[0])", {"ds": _AB}),
):
    _edit(f"another expression: {_doc}", _old, _new, **{"ds": _AUTO, **({"args": _DOUBLE} if "0." in _old or "math." in _old or "1e" in _old else {}), **_more})
for _doc, _old, _new in (
    ("two items are multiplied in another order", "a, b = x[0].item(), x[1].item()\nreturn x * (a * b)", "a, b = x[0].item(), x[1].item()\nreturn x * (b * a)"),
    ("a maximum of two items in another order", "a, b = x[0].item(), x[1].item()\nreturn x * torch.sym_max(a, b)", "a, b = x[0].item(), x[1].item()\nreturn x * torch.sym_max(b, a)"),
    ("an item is scaled by a float with more digits", "a = x[0].item()\nreturn x * (a * 0.3)", "a = x[0].item()\nreturn x * (a * (0.1 + 0.2))"),
    ("a float item is scaled by a float with more digits", "a = x.double().mean().item()\nreturn x * (a * 0.3)", "a = x.double().mean().item()\nreturn x * (a * (0.1 + 0.2))"),
    ("a float item's limit has more digits", "a = x.double().mean().item()\ntorch._check(a < 2.3)\nreturn x * a", "a = x.double().mean().item()\ntorch._check(a < 2.3000000000000003)\nreturn x * a"),
    ("a float item's addends are in another order", "a = x.double().mean().item()\nreturn x * (a + 0.1 + 0.2)", "a = x.double().mean().item()\nreturn x * (a + (0.1 + 0.2))"),
    ("a float item and its double", "a = x.double().mean().item()\nreturn x * (a + a)", "a = x.double().mean().item()\nreturn x * (2 * a)"),
    ("a float item divided by itself", "a = x.double().mean().item()\nreturn x * (a - a)", "a = x.double().mean().item()\nreturn x * (a * 0.0)"),
    ("a check stands behind the use", "a = x[0].item()\ntorch._check(a >= 0)\ny = x * a\nreturn y, torch.zeros(a)", "a = x[0].item()\ny = x * a\ntorch._check(a >= 0)\nreturn y, torch.zeros(a)"),
    ("a check is written with the sides exchanged", "a = x[0].item()\ntorch._check(a >= 0)\nreturn torch.zeros(a)", "a = x[0].item()\ntorch._check(0 <= a)\nreturn torch.zeros(a)"),
    ("a check of two comparisons becomes two checks", "a = x[0].item()\ntorch._check(a >= 0)\ntorch._check(a < 9)\nreturn torch.zeros(a)", "a = x[0].item()\ntorch._check(torch.sym_and(a >= 0, a < 9))\nreturn torch.zeros(a)"),
    ("an equality of two items in another order", "a, b = x[0].item(), x[1].item()\ntorch._check(a == b + 2)\nreturn x * a * b", "a, b = x[0].item(), x[1].item()\ntorch._check(b + 2 == a)\nreturn x * a * b"),
    ("an item that a check equates with a number", "a = x[0].item()\ntorch._check(a == 3)\nreturn x * a", "a = x[0].item()\ntorch._check(a == 3)\nreturn x * 3"),
    ("an item that a check equates with another item", "a, b = x[2].item(), x[4].item()\ntorch._check(a == b)\nreturn x * a", "a, b = x[2].item(), x[4].item()\ntorch._check(a == b)\nreturn x * b"),
    ("the number of the selected rows by sum", "y = x[x > 1]\nreturn y / y.shape[0]", "y = x[x > 1]\nreturn y / (x > 1).sum()"),
):
    _edit(f"another expression of values: {_doc}", _old, _new, ds="None", args=_I)

# 11. A share of the rows: 1 - 0.9 is a little less than 0.1, so that of 30 rows two are kept, not three.

_ROWS = {"args": "(torch.arange(120.0).reshape(30, 4),)", "ds": _AUTO}
for _doc, _old, _new in (
    ("sym_int", "x[: torch.sym_int(x.shape[0] * 0.1)]", "x[: torch.sym_int(x.shape[0] * (1 - 0.9))]"),
    ("math.floor", "x[: math.floor(x.shape[0] * 0.1)]", "x[: math.floor(x.shape[0] * (1 - 0.9))]"),
    ("math.ceil", "x[: math.ceil(x.shape[0] * 0.7)]", "x[: math.ceil(x.shape[0] * (0.1 * 7))]"),
    ("int", "x[: int(x.shape[0] * 0.1)]", "x[: int(x.shape[0] * (1 - 0.9))]"),
    ("topk of the rows", "x.topk(math.floor(x.shape[0] * 0.1), 0)[0]", "x.topk(math.floor(x.shape[0] * (1 - 0.9)), 0)[0]"),
    ("zeros of its length", "torch.zeros(math.floor(x.shape[0] * 0.1)), x * 2", "torch.zeros(math.floor(x.shape[0] * (1 - 0.9))), x * 2"),
    ("a factor", "x * math.floor(x.shape[0] * 0.1)", "x * math.floor(x.shape[0] * (1 - 0.9))"),
    ("a branch", "x if math.floor(x.shape[0] * 0.1) > 2 else x * 2", "x if math.floor(x.shape[0] * (1 - 0.9)) > 2 else x * 2"),
):
    _edit(f"a share of the rows is written as 1 - 0.9: {_doc}", _old, _new, **_ROWS)
_s("a share of the rows is an attribute that is computed as 1 - drop", "x[: math.floor(x.shape[0] * self.keep)]", "model.keep = 1 - 0.9", init="self.keep = 0.1", **_ROWS)
_s("a share of the rows comes from the environment with more digits", "x[: math.floor(x.shape[0] * float(os.environ.get('KEEP', '0.1')))]", env={"KEEP": "0.09999999999999998"}, top="import os", **_ROWS)

# 12. Named dims that are shared by the inputs, as in most guides.

_SHARED = f"{_FROM}args = (torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.long))\nbatch, seq = Dim('batch', min=2, max=8), Dim('seq', min=2, max=32)\nkwargs, dynamic_shapes = {{}}, ({{0: batch, 1: seq}},) * 2\n"
_TOY = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.emb = nn.Embedding(20, 4)\n        self.out = nn.Linear(4, 2)\n        self.k = 2\n    def forward(self, ids, mask):\n        y = self.emb(ids) * mask[..., None]\n        return self.out(y.sum(1) / mask.sum(1, True).clamp(1)) * self.k\n"
for _name, _code in (("BERT", f"from transformers import BertConfig, BertModel\n{_BERT}"), ("a bag of words", _TOY)):
    for _doc, _change, _more in (
        ("weights are retrained", "[p.data.mul_(1.1) for p in model.parameters()]", {"harmless": True}),
        ("the sequence is static", "dynamic_shapes = ({0: batch},) * 2", {}),
        ("the batch has another maximum", "batch = Dim('batch', min=2, max=16)\ndynamic_shapes = ({0: batch, 1: seq},) * 2", {}),
        ("the mask has Dims of its own", "dynamic_shapes = ({0: batch, 1: seq}, {0: Dim('b', min=2, max=8), 1: Dim('s', min=2, max=32)})", {}),
        ("DYNAMIC in place of names", "dynamic_shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},) * 2", {}),
    ):
        _add(f"shared dims of {_name}: {_doc}", _code, _change, first=_SHARED, **_more)
_add("shared dims of a bag of words: a factor is another", _TOY, "model.k = 3", first=_SHARED)
_add("shared dims of a bag of words: a sum of the mask is limited otherwise", _TOY, "", ("clamp(1)", "clamp(2)"), first=_SHARED)

# 13. Inputs that are one tensor, and what is remembered between two calls.

for _doc, _forward, _args, _change in (
    ("forward asks whether they are one object", "x * (2.0 if x is y else 3.0) + y.sum()", _TWO, "args = (args[0], args[0])"),
    ("forward asks whether they are one object, and they were", "x * (2.0 if x is y else 3.0) + y.sum()", "(torch.ones(6, 4),) * 2", "args = (args[0], args[0] + 0)"),
    ("one is changed in place", "x.add_(1)\nreturn x * 2 + y", _TWO, "args = (args[0], args[0])"),
    ("they are two views of all of one tensor", "x.add_(1)\nreturn x * 2 + y", _TWO, "args = (args[0], args[0][:])"),
    ("a set of them is counted", "x * len({id(x), id(y)}) + y", _TWO, "args = (args[0], args[0])"),
):
    for _how, _ds in (("dynamic", "({0: Dim.AUTO}, {0: Dim.AUTO})"), ("static", "None")):
        _s(f"one tensor for two inputs, {_how}: {_doc}", _forward, _change, args=_args, ds=_ds, sig="x, y")
_s("one tensor for two inputs, in a list: they are one object", "v[0].sum(0) * 2 + v[1].sum(0)", "args = ([args[0][0], args[0][0]],)", args="([torch.ones(6, 4), torch.ones(6, 4)],)", ds="None", sig="v")
_s("one tensor for two inputs, in a list: one is changed in place", "v[0].mul_(3)\nreturn v[0] * 2 + v[1]", "args = ([args[0][0], args[0][0]],)", args="([torch.ones(6, 4), torch.ones(6, 4)],)", ds="None", sig="v")
_s("an input is the model's weight", "self.lin(x) + self.lin.weight", "args = (model.lin.weight,)", args="(torch.nn.Parameter(torch.ones(4, 4)),)", ds="None")
_s("an input is a buffer's memory", "x.add_(1)\nreturn x * self.b", "args = (model.b,)", args="(torch.ones(4, 4),)", ds="None", init="self.register_buffer('b', torch.ones(4, 4))")
_s("a longest length is remembered as a size", "self.seen = max(self.seen, x.shape[0])\nreturn x * (2.0 if self.seen > 8 else 3.0)", "model.seen = 9", ds=_AUTO, init="self.seen = 0")
_s("a mask is remembered for its length", "if self.mask is None or self.mask.shape[0] != x.shape[1]:\n    self.mask = torch.ones(x.shape[1]).tril() if False else torch.ones(x.shape[1])\nreturn x * self.mask", "model.mask = torch.full((4,), 2.0)", ds=_AUTO, init="self.mask = None")
_s("a list of all lengths is kept", "self.all.append(x.shape[1])\nreturn x * len(self.all)", "model.all.extend([4, 4])", ds=_AUTO, init="self.all = []")
