"""Changes of state that torch holds: hooks, tensors, operators, modes, flags. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model


def _each(tensors: str) -> str:
    return f"for i, p in enumerate({tensors}):\n    x = x * p + i\nreturn x"


def _if(condition: str) -> str:
    return "x * (2.0 if " + condition + " else 3.0)"


# 1. Hooks and the ways into a module.

_add("a forward hook's with_kwargs flag is set later",
     _model("self.lin(x)", "self.lin.register_forward_hook(hook)", """
     def hook(module, *rest):
         return rest[-1] * float(len(rest))
     """), "model.lin._forward_hooks_with_kwargs.update({k: True for k in model.lin._forward_hooks})")
_add("a pre-hook's with_kwargs flag is set later",
     _model("self.lin(x)", "self.lin.register_forward_pre_hook(hook)", """
     def hook(module, *rest):
         if len(rest) == 2:
             return (rest[0][0] * 3,), rest[1]
         return (rest[0][0] * 2,)
     """), "model.lin._forward_pre_hooks_with_kwargs.update({k: True for k in model.lin._forward_pre_hooks})")
_add("the count of always-called hooks is read",
     _model("x * (2.0 + len(self.lin._forward_hooks_always_called))", "self.lin.register_forward_hook(hook)", """
     def hook(module, args, out):
         return None
     """), "model.lin._forward_hooks_always_called.update({k: True for k in model.lin._forward_hooks})")
_add("a layer's _call_impl is overridden on the instance",
     _model("self.lin(x)"), "object.__setattr__(model.lin, '_call_impl', torch.nn.functional.relu)")
_add("a layer's _compiled_call_impl is another callable",
     _model("self.lin(x)"), "model.lin._compiled_call_impl = torch.nn.functional.relu")
_add("_compiled_call_impl of a layer's class is a function",
     _model("self.act(x)", "self.act = nn.ReLU()"),
     "torch.nn.ReLU._compiled_call_impl = lambda self, x: x * 3")
_add("Module._call_impl is patched for all",
     _model("self.lin(x)"),
     """
     old = torch.nn.Module._call_impl
     def call(self, *args, **kwargs):
         out = old(self, *args, **kwargs)
         return out * 3 if type(self) is torch.nn.Linear else out
     torch.nn.Module._call_impl = call
     """)
_add("a module registration hook replaces children made in forward",
     _model("nn.Sequential(nn.ReLU())(x)"),
     """
     from torch.nn.modules.module import register_module_module_registration_hook
     register_module_module_registration_hook(
         lambda parent, name, sub: torch.nn.Sigmoid() if type(sub) is torch.nn.ReLU else None)
     """)
_add("a global hook's with_kwargs flag is set",
     _model("self.lin(x)"),
     """
     from torch.nn.modules import module as m
     m._global_forward_hooks_with_kwargs.update({k: True for k in m._global_forward_hooks})
     """,
     first="""
from torch.nn.modules.module import register_module_forward_hook
def hook(module, *rest):
    return rest[-1] * len(rest) if type(module) is torch.nn.Linear else None
register_module_forward_hook(hook)
""")
_add("a state_dict hook renames what forward iterates over",
     _model("""
     for i, key in enumerate(self.state_dict()):
         x = x * (len(key) + i)
     return x
     """),
     """
     def rename(module, state, prefix, meta):
         state["a_longer_name"] = state.pop("lin.bias")
     model._register_state_dict_hook(rename)
     """)
_add("a tensor hook on a kept tensor is read",
     _model(_if("self.kept[0]._backward_hooks is None"), "self.kept = [torch.ones(4, requires_grad=True)]"),
     "model.kept[0].register_hook(lambda g: g)")
_add("a post-accumulate hook on a kept tensor is read",
     _model(_if("not self.kept[0]._post_accumulate_grad_hooks"), "self.kept = [torch.ones(4, requires_grad=True)]"),
     "model.kept[0].register_post_accumulate_grad_hook(lambda p: None)")

# 2. Orders and containers of modules.

_add("the order of _parameters is another",
     _model(_each("self.parameters(recurse=False)"), "self.a = nn.Parameter(torch.ones(4))\nself.b = nn.Parameter(torch.ones(4))"),
     "model._parameters['a'] = model._parameters.pop('a')")
_add("the order of _buffers is another",
     _model(_each("self.buffers()"), "self.register_buffer('a', torch.ones(4))\nself.register_buffer('b', torch.ones(4))"),
     "model._buffers['a'] = model._buffers.pop('a')")
_add("the key order of a ParameterDict is another",
     _model(_each("self.ps.values()"), "self.ps = nn.ParameterDict({'a': torch.ones(4), 'b': torch.ones(4)})"),
     "model.ps._keys = {'b': None, 'a': None}")
_add("the key order of a ParameterDict is changed in place",
     _model(_each("self.ps.values()"), "self.ps = nn.ParameterDict({'a': torch.ones(4), 'b': torch.ones(4)})"),
     "del model.ps._keys['a']\nmodel.ps._keys['a'] = None")
_add("the size of a ParameterList is smaller",
     _model(_each("self.ps"), "self.ps = nn.ParameterList([torch.ones(4), torch.ones(4)])"),
     "model.ps._size = 1")
_add("a ParameterList has a number that is another",
     _model("x * self.ps[0] * self.ps[1]", "self.ps = nn.ParameterList([torch.ones(4), 2.0])"), "model.ps[1] = 3.0")
_add("two parametrizations are exchanged",
     _model("self.lin(x)", """
     torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', A())
     torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', B())
     """, """
     class A(nn.Module):
         def forward(self, w):
             return w * 2
     class B(nn.Module):
         def forward(self, w):
             return w + 1
     """),
     "m = model.lin.parametrizations['weight']._modules\nm['0'], m['1'] = m['1'], m['0']")
_add("the dimension of a weight norm parametrization is another",
     _model("self.lin(x)", "torch.nn.utils.parametrizations.weight_norm(self.lin, dim=None)"),
     "model.lin.parametrizations.weight[0].dim = 0\nmodel.lin.parametrizations.weight.original0 = "
     "torch.nn.Parameter(torch.ones(4, 1))")
_add("only a spectral norm's parametrization trains",
     _model("self.lin(x)", "torch.nn.utils.parametrizations.spectral_norm(self.lin)"),
     "model.lin.parametrizations.weight[0].train()")
_add("parametrizations are cached: forward finds a weight in the cache",
     _model("self.lin(x)", "torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', A())", """
     class A(nn.Module):
         def forward(self, w):
             return w * 2
     """),
     """
     c = torch.nn.utils.parametrize.cached()
     c.__enter__()
     with torch.no_grad():
         model(args[0])
     """)
_add("a module's cache of parametrizations is counted",
     _model("x * (2.0 + torch.nn.utils.parametrize._cache_enabled)"), "torch.nn.utils.parametrize._cache_enabled = 1")
_add("an instance attribute shadows a weight",
     _model("self.lin(x)"), "model.lin.__dict__['weight'] = torch.full((4, 4), 3.0)")
_add("an instance attribute shadows a child",
     _model("self.lin(x)"), "object.__setattr__(model, 'lin', torch.nn.functional.relu)")
_add("a slot of the base, shadowed by one of the same name, is another",
     """
     class Base(nn.Module):
         __slots__ = ("by",)
         def __init__(self):
             super().__init__()
             Base.by.__set__(self, 2.0)
         def forward(self, x):
             return x * Base.by.__get__(self)
     class Model(Base):
         __slots__ = ("by",)
     """, "app.Base.by.__set__(model, 3.0)")
_add("a slot and an entry of the instance's dictionary have the same name",
     """
     class Model(nn.Module):
         __slots__ = ("by",)
         def __init__(self):
             super().__init__()
             self.__dict__["by"] = 2.0
             Model.by.__set__(self, 2.0)
         def forward(self, x):
             return x * self.__dict__["by"]
     """, "model.__dict__['by'] = 3.0")
_add("the running-stat flag of one norm is off",
     _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.running_mean = None; model.bn.running_var = None")
_add("a dropout's p is another while it trains", _model("F.dropout(x, self.d.p, self.d.training)",
     "self.d = nn.Dropout(0.25)"), "model.d.p = 0.0\nmodel.d.train()")
_add("the training flag is removed from an instance, and the class has one",
     _model(_if("not self.lin.training")), "del model.lin.__dict__['training']\ntorch.nn.Linear.training = True")
_add("__constants__ of a layer's class are read", _model("x * float(len(nn.Linear.__constants__))"),
     "torch.nn.Linear.__constants__.append('more')")
_add("functional_call gets a dictionary with another key",
     _model("torch.func.functional_call(self.lin, self.other, (x,))", "self.other = {'bias': torch.ones(4)}"),
     "model.other['weight'] = torch.eye(4)")

# 3. Properties of tensors: kept, registered, or arguments.

for _doc, _make, _read, _change in [
    ("storage offset of a buffer", "torch.arange(8.)[:4]", "self.b.storage_offset() == 0", "torch.arange(8.)[4:]"),
    ("storage size of a buffer", "torch.ones(4)", "self.b.untyped_storage().nbytes() == 16", "torch.ones(40)[:4]"),
    ("stride of a dimension of size 1", "torch.ones(1, 4)", "self.b.stride(0) == 4",
     "torch.ones(8).as_strided((1, 4), (7, 1))"),
    ("negative bit of a buffer", "torch.zeros(4)", "not self.b.is_neg()", "torch.zeros(4, dtype=torch.cfloat).conj().imag"),
    ("requires_grad of a buffer", "torch.ones(4)", "not self.b.requires_grad", "torch.ones(4, requires_grad=True)"),
    ("leafness of a buffer", "torch.ones(4, requires_grad=True)", "self.b.is_leaf",
     "torch.ones(4, requires_grad=True) * 1"),
    ("view-ness of a buffer", "torch.ones(4)", "self.b._base is None", "torch.ones(4).view(4)"),
    ("gradient of a buffer", "torch.ones(4, requires_grad=True)", "self.b.grad is None", None),
    ("a buffer is an inference tensor", "torch.ones(4)", "not self.b.is_inference()", "inference"),
]:
    _to = {
        None: "model.b.grad = torch.ones(4)",
        "inference": "with torch.inference_mode():\n    new = torch.ones(4)\nmodel._buffers['b'] = new",
    }.get(_change, f"model._buffers['b'] = {_change}")
    _add(f"{_doc} is another", _model(_if(_read), f"self.register_buffer('b', {_make})"), _to)
    _add(f"{_doc} is another, in a list", _model(_if(_read.replace("self.b", "self.kept[0]")),
         f"self.kept = [{_make}]"), _to.replace("model._buffers['b']", "model.kept[0]").replace("model.b.", "model.kept[0]."))

_add("a kept tensor has an attribute", _model(_if("getattr(self.kept[0], 'scale', None) is None"),
     "self.kept = [torch.ones(4)]"), "model.kept[0].scale = 3.0")
_add("a Parameter object's class is assigned", _model(_if("type(self.kept[0]) is nn.Parameter"),
     "self.kept = [nn.Parameter(torch.ones(4))]", "class Other(nn.Parameter):\n    pass"),
     "model.kept[0].__class__ = app.Other")
_add("the gradient's dtype of a weight after backward is read", _model(_if("self.lin.weight.grad is None")),
     "model.lin(args[0]).sum().backward()")
_add("a constant is changed through .data", _model("x * self.kept[0]", "self.kept = [torch.full((4,), 2.0)]"),
     "model.kept[0].data.mul_(1.5)")
_add("a constant's data is another tensor's", _model("x * self.kept[0]", "self.kept = [torch.full((4,), 2.0)]"),
     "model.kept[0].data = torch.full((4,), 3.0)")
_add("a constant is changed through its storage", _model("x * self.c", "self.c = torch.full((4,), 2.0)"),
     "model.c.untyped_storage().fill_(64)")
_add("a constant is changed below torch", _model("x * self.c", "self.c = torch.full((4,), 2.0)"),
     "import ctypes\nctypes.memset(model.c.data_ptr(), 64, 8)")
_add("a constant is swapped for another in place", _model("x * self.kept[0]", "self.kept = [torch.full((4,), 2.0)]"),
     "torch.utils.swap_tensors(model.kept[0], torch.full((4,), 3.0))", live=False)
_add("a constant's bytearray is changed", _model("x * self.c",
     "self.raw = bytearray(torch.full((4,), 2.0).numpy().tobytes())\nself.c = torch.frombuffer(self.raw, dtype=torch.float32)"),
     "model.raw[0:4] = b'\\x00\\x00\\x40\\x40'")
_add("a constant mapped from a file changes with the file",
     _model("x * self.c", "self.c = torch.from_file('c.bin', shared=True, size=4)"),
     "torch.from_file('c.bin', shared=True, size=4).fill_(3.0)",
     first="torch.from_file('c.bin', shared=True, size=4).fill_(2.0)\n")
_add("the last bit of a large constant is another", _model("x * self.c[:4]",
     "self.c = torch.ones(300000)"), "model.c[299999] = 1.0000001")
_add("a constant of -0.0", _model("1.0 / (x * 0 + self.c)", "self.c = torch.zeros(4)"),
     "model.c = -torch.zeros(4)")
_add("a NaN constant's sign is another", _model("torch.copysign(x, self.c)", "self.c = torch.full((4,), float('nan'))"),
     "model.c = -model.c")
_add("an outer view of a constant is written",
     _model("x * self.kept[0]", "self.kept = [Model.whole[:4]]", more="whole = torch.full((8,), 2.0)"),
     "app.Model.whole.fill_(3.0)")
_add("a NumPy mask is another", _model("x * float(self.m.sum())",
     "import numpy as np\nself.m = np.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 1])"), "model.m.mask = [0, 1, 0]")
_add("a NumPy scalar's type is another", _model("x.double() * torch.as_tensor(self.s)",
     "import numpy as np\nself.s = np.float32(2.0)"), "import numpy as np\nmodel.s = np.float64(2.0)")
_add("a NumPy array in a dataclass is written through a view", _model("x * torch.from_numpy(self.a)",
     "import numpy as np\nself.a = np.full(4, 2.0, dtype='float32')"), "model.a.reshape(2, 2)[1, 1] = 3.0")
_add("a NumPy array becomes read-only", _model(_if("self.a.flags.writeable"),
     "import numpy as np\nself.a = np.full(4, 2.0)"), "model.a.flags.writeable = False")
_add("finfo of another dtype", _model("x * self.info.eps", "self.info = torch.finfo(torch.float32)"),
     "model.info = torch.finfo(torch.float16)")
_add("finfo of a dtype with the same number of bits", _model("x * self.info.eps",
     "self.info = torch.finfo(torch.float16)"), "model.info = torch.finfo(torch.bfloat16)")
_add("a device with an index", _model(_if("self.d.index is None"), "self.d = torch.device('cpu')"),
     "model.d = torch.device('cpu', 0)")
_add("a torch.Size is a tuple", _model(_if("isinstance(self.s, torch.Size)"), "self.s = torch.Size((3, 4))"),
     "model.s = (3, 4)")
_add("a bool is an int", _model("torch.full((4,), self.v) * x", "self.v = 1"), "model.v = True")
_add("a float is -0.0", _model("1.0 / (x * 0 + 1) * torch.full((4,), self.v).copysign(torch.tensor(self.v))",
     "self.v = 0.0"), "model.v = -0.0")
_add("a complex number's imaginary part is -0.0", _model("torch.copysign(x, torch.tensor(self.v.imag))",
     "self.v = complex(1, 0.0)"), "model.v = complex(1, -0.0)")

# Arguments.

for _doc, _read, _change in [
    ("requires gradients", "not x.requires_grad", "args[0].requires_grad_()"),
    ("is transposed in memory", "x.stride(1) == 1", "args = (args[0].t().contiguous().t(),)"),
    ("has a storage offset", "x.storage_offset() == 0", "args = (torch.cat([args[0], args[0]])[3:],)"),
    ("has a larger storage", "x.untyped_storage().nbytes() == 48", "args = (torch.cat([args[0], args[0]])[:3],)"),
    ("has the negative bit", "not x.is_neg()", "args = (torch.complex(args[0] * 0, -args[0]).conj().imag,)"),
    ("is a parameter", "not isinstance(x, nn.Parameter)", "args = (torch.nn.Parameter(args[0], requires_grad=False),)"),
    ("is a view", "x._base is None", "args = (args[0].view(3, 4),)"),
    ("is no leaf", "x.is_leaf", "args = (args[0].requires_grad_() * 1,)"),
    ("has a gradient", "x.grad is None", "args[0].requires_grad_()\nargs[0].grad = torch.ones(3, 4)"),
    ("is an inference tensor", "not x.is_inference()", "with torch.inference_mode():\n    args = (args[0].clone(),)"),
]:
    _add(f"the input {_doc}", _model(_if(_read)), _change)

_TWO = ("\n\nclass Model(nn.Module):\n    def forward(self, x, y):\n        BODY\n")
_add("two arguments are one tensor", _TWO.replace("BODY", "return x * 2 if x is y else x * y"),
     "args = (args[0], args[0])", first="args = (args[0], args[0].clone())\n")
_add("two arguments are views of one base", _TWO.replace("BODY", "return x * 2 if x._base is not None else x * y"),
     "b = torch.ones(2, 3, 4)\nargs = (b[0], b[1])", first="args = (torch.ones(3, 4), torch.ones(3, 4))\n")
_add("an argument is the model's own weight",
     "\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
     "        self.w = nn.Parameter(torch.ones(4))\n"
     "    def forward(self, x, y):\n        return x * 2 if y is self.w else x * y\n",
     "args = (args[0], model.w)", first="args = (args[0], torch.nn.Parameter(torch.ones(4)))\n")
_add("an int argument is a bool", _TWO.replace("BODY", "return x * 2 if y is True else x * y"),
     "args = (args[0], True)", first="args = (args[0], 1)\n")
_add("an int argument is a float", _TWO.replace("BODY", "return x.int() * y"),
     "args = (args[0], 2.0)", first="args = (args[0], 2)\n")
_add("a float argument is -0.0", _TWO.replace("BODY", "return torch.copysign(x, torch.tensor(y))"),
     "args = (args[0], -0.0)", first="args = (args[0], 0.0)\n")
_add("keyword arguments come in another order",
     "\n\nclass Model(nn.Module):\n    def forward(self, x, **more):\n        for i, v in enumerate(more.values()):\n"
     "            x = x * v + i\n        return x\n",
     "kwargs = dict(reversed(list(kwargs.items())))",
     first="kwargs = {'a': torch.ones(4), 'b': torch.ones(4)}\n")
_add("a dictionary argument has other order",
     _TWO.replace("BODY", "return x * list(y.values())[0] + len(next(iter(y)))"),
     "args = (args[0], dict(reversed(list(args[1].items()))))",
     first="args = (args[0], {'a': torch.ones(4), 'bb': torch.ones(4)})\n")
_add("a dictionary argument's key is True instead of 1",
     _TWO.replace("BODY", "return x * 2 * y[1] if next(iter(y)) is True else x * y[1]"),
     "args = (args[0], {True: torch.ones(4)})", first="args = (args[0], {1: torch.ones(4)})\n")
_add("a dictionary argument is an OrderedDict", _TWO.replace("BODY", "return x * y['a'] * (2 if type(y) is dict else 3)"),
     "import collections\nargs = (args[0], collections.OrderedDict(a=torch.ones(4)))",
     first="args = (args[0], {'a': torch.ones(4)})\n")
_PAIR = """
class Pair:
    def __init__(self, a, b, by):
        self.a, self.b, self.by = a, b, by
def flatten(p):
    return [p.a, p.b], p.by
def unflatten(leaves, by):
    return Pair(*leaves, by)
def flatten_with_keys(p):
    key = torch.utils._pytree.GetAttrKey
    return [(key("a"), flatten(p)[0][0]), (key("b"), flatten(p)[0][1])], p.by
torch.utils._pytree.register_pytree_node(
    Pair, flatten, unflatten, serialized_type_name="app.Pair", flatten_with_keys_fn=flatten_with_keys)


class Model(nn.Module):
    def forward(self, x, p):
        return (x - p.a) * p.b * p.by
"""
_add("the unflatten function of an input class is edited in place", _PAIR,
     "def other(leaves, by):\n    return app.Pair(leaves[0], leaves[1] * 3, by)\n"
     "app.unflatten.__code__ = (lambda leaves, by: Pair(leaves[1], leaves[0], by)).__code__",
     first="import app\nargs = (args[0], app.Pair(torch.ones(4), torch.full((4,), 2.0), 2.0))\n")
_add("the registration of an input class is replaced", _PAIR,
     """
     import torch.utils._pytree as pt
     old = pt.SUPPORTED_NODES[app.Pair]
     pt.SUPPORTED_NODES[app.Pair] = pt.NodeDef(
         app.Pair, lambda p: ([p.b, p.a], p.by), lambda l, by: app.Pair(l[0], l[1], by), None)
     """,
     first="import app\nargs = (args[0], app.Pair(torch.ones(4), torch.full((4,), 2.0), 2.0))\n")
_add("the context of an input object is another", _PAIR, "args[1].by = 3.0",
     first="import app\nargs = (args[0], app.Pair(torch.ones(4), torch.full((4,), 2.0), 2.0))\n")
_add("an input object has an attribute that its flattening drops and unflattening reads from a global",
     _PAIR.replace("return Pair(*leaves, by)", "return Pair(*leaves, by * BY[0])").replace("\nclass Pair:", "\nBY = [1.0]\nclass Pair:"),
     "app.BY[0] = 1.5",
     first="import app\nargs = (args[0], app.Pair(torch.ones(4), torch.full((4,), 2.0), 2.0))\n")
_add("an input's flattening is edited in the file", _PAIR, "",
     ("return [p.a, p.b], p.by", "return [p.b, p.a], p.by"),
     first="import app\nargs = (args[0], app.Pair(torch.ones(4), torch.full((4,), 2.0), 2.0))\n")

# Dynamic shapes.

_D = "from torch.export import Dim\ndynamic_shapes = "
_add("the maximum of a Dim is another", _model("self.lin(x)"),
     "dynamic_shapes = ({0: Dim('n', max=9)},)", first=_D + "({0: Dim('n', max=8)},)\n")
_add("the minimum of a Dim is another", _model("self.lin(x)"),
     "dynamic_shapes = ({0: Dim('n', min=3, max=8)},)", first=_D + "({0: Dim('n', min=2, max=8)},)\n")
_add("AUTO becomes STATIC", _model("self.lin(x)"),
     "dynamic_shapes = ({0: Dim.STATIC},)", first=_D + "({0: Dim.AUTO},)\n")
_add("AUTO's maximum is another", _model("self.lin(x)"),
     "dynamic_shapes = ({0: Dim.AUTO(min=2, max=99)},)", first=_D + "({0: Dim.AUTO(min=2, max=64)},)\n")
_add("an example of another size takes another branch under AUTO",
     _model("x * 2 if x.shape[0] > 4 else x * 3"),
     "args = (torch.arange(20.).reshape(5, 4),)", first=_D + "({0: Dim.AUTO},)\n")
_add("an example of size 1 specializes under AUTO", _model("self.lin(x)"),
     "args = (torch.ones(1, 4),)", first=_D + "({0: Dim.AUTO},)\n")
_add("equal sizes of two inputs are one symbol", _TWO.replace("BODY", "return x.sum(0) * y.sum(0)"),
     "args = (args[0], torch.ones(3, 4))", first="args = (args[0], torch.ones(5, 4))\n" + _D + "({0: Dim.AUTO}, {0: Dim.AUTO})\n")
_add("duck shaping is off", _TWO.replace("BODY", "return x.sum(0) * y.sum(0)"),
     "torch.fx.experimental._config.use_duck_shape = False",
     first="args = (args[0], torch.ones(3, 4))\n" + _D + "({0: Dim.AUTO}, {0: Dim.AUTO})\n")
_add("one Dim is used for two inputs instead of two", _TWO.replace("BODY", "return x.sum(0) * y.sum(0)"),
     "dynamic_shapes = ({0: n}, {0: n})",
     first="args = (args[0], torch.ones(3, 4))\n" + _D + "({0: (n := Dim('n', max=8))}, {0: Dim('m', max=8)})\n")
_add("a Dim's attributes are changed in place", _model("self.lin(x)"), "n.max = 9",
     first=_D + "({0: (n := Dim('n', max=8))},)\n")

# 4. Functions of autograd, functorch, libraries.

_FN = """
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
"""
_add("an autograd function's forward is replaced", _model("Fn.apply(x)", "pass", _FN),
     "app.Fn.forward = staticmethod(lambda ctx, x: x * 3)")
_add("an autograd function's apply is replaced", _model("Fn.apply(x)", "pass", _FN), "app.Fn.apply = torch.relu")
_add("the apply of all autograd functions is replaced", _model("Fn.apply(x)", "pass", _FN),
     "torch.autograd.Function.apply = classmethod(lambda cls, x: x * 3)")
_add("torch.autograd.grad inside forward runs a tensor hook of a closure", _model("""
     y = x.detach().requires_grad_()
     y.register_hook(lambda g: g * BY[0])
     with torch.enable_grad():
         return torch.autograd.grad((y * y).sum(), y)[0]
     """, "pass", "BY = [2.0]"), "app.BY[0] = 3.0")
_add("a vmapped function's in_dims are another", _model("torch.vmap(f, in_dims=DIMS)(self.sq * 1)",
     "self.register_buffer('sq', torch.arange(16.).reshape(4, 4))", "DIMS = (0,)\ndef f(v):\n    return v.cumsum(0)"), "app.DIMS = (1,)")
_add("a function that vmap calls has another code", _model("torch.vmap(f)(x)", "pass", "def f(v):\n    return v * 2"),
     "app.f.__code__ = (lambda v: v * 3).__code__")
_add("a function behind __wrapped__ of a vmapped partial is another",
     _model("self.f(x)", "self.f = torch.vmap(f)", "def f(v):\n    return v * BY\nBY = 2.0"), "app.BY = 3.0")
_OP = """
@torch.library.custom_op("atk::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by
@scale.register_fake
def _(x, by):
    return torch.empty_like(x, dtype=DTYPE[0])
DTYPE = [torch.float32]
"""
_add("a custom operator's fake reads another dtype", _model("scale(x, 2.0)", "pass", _OP), "app.DTYPE[0] = torch.float64")
_add("a composite operator of one's own, by Library.define, is redefined",
     _model("torch.ops.atk2.f(x)", "pass", """
     lib = torch.library.Library("atk2", "DEF")
     lib.define("f(Tensor x) -> Tensor")
     def f(x):
         return x * BY
     lib.impl("f", f, "CompositeImplicitAutograd")
     BY = 2.0
     """), "app.BY = 3.0")
for _key in ("AutogradCPU", "CompositeImplicitAutograd", "AutocastCPU"):
    _wrap = "with torch.autocast('cpu'):\n    return F.relu(x)" if _key == "AutocastCPU" else "F.relu(x)"
    _add(f"aten::relu gets a kernel for {_key} in Python", _model(_wrap),
         f"mine = torch.library.Library('aten', 'IMPL')\nmine.impl('relu', lambda x: x * 3, '{_key}')")
_add("aten::relu gets a kernel for vmap", _model("torch.vmap(torch.relu)(x)"),
     "mine = torch.library.Library('aten', 'IMPL')\n"
     "mine.impl('relu', lambda x: torch.zeros(3, 4).add(1), 'FuncTorchBatched')")
_add("a composite operator gets another implementation in Python",
     _model("torch.vmap(lambda v: F.silu(v))(x) + F.linear(x, self.lin.weight)"),
     "torch.ops.aten.linear.default.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)("
     "lambda x, w, b=None: torch.ops.aten.matmul.default(x, w.t()) * 3)")
_add("the table of decompositions has another one", _model("F.silu(x)"),
     "torch._decomp.decomposition_table[torch.ops.aten.silu.default] = lambda x: x * 3\n"
     "torch._decomp._decomp_table_to_post_autograd_aten = lambda: {torch.ops.aten.silu.default: lambda x: x * 3}")
_add("an overload packet's attribute is another overload", _model("torch.ops.aten.relu.default(x)"),
     "torch.ops.aten.relu.default = torch.ops.aten.sigmoid.default")
_add("a packet of torch.ops.aten is another", _model("torch.ops.aten.relu(x)"),
     "torch.ops.aten.relu = torch.ops.aten.sigmoid")

# 5. FX, TorchScript.

_FX = _model("Run(self.gm).run(x)", "self.gm = torch.fx.symbolic_trace(Inner())", """
class Inner(nn.Module):
    def forward(self, x):
        return torch.add(torch.relu(x), 2.0)
class Run(torch.fx.Interpreter):
    pass
""")
for _doc, _change in [
    ("target", "node.target = torch.sub"),
    ("arguments", "node.args = (node.args[0], 3.0)"),
    ("keywords", "node.kwargs = {'alpha': 3}"),
    ("input", "node.args = (next(iter(model.gm.graph.nodes)), 2.0)"),
]:
    _add(f"a node's {_doc} is another, and an interpreter runs the graph",
         _FX, f"node = [n for n in model.gm.graph.nodes if n.target is torch.add][0]\n{_change}")
_add("nodes are in another order, and forward goes over them", _model("""
     for i, n in enumerate(self.gm.graph.nodes):
         x = x * (len(n.name) + i)
     return x
     """, "self.gm = torch.fx.symbolic_trace(Inner())", """
     class Inner(nn.Module):
         def forward(self, x):
             return torch.sigmoid(x) + torch.relu(x)
     """), "ns = list(model.gm.graph.nodes)\nns[1].prepend(ns[2])")
_add("meta of a node is read", _model("x * list(self.gm.graph.nodes)[0].meta.get('by', 2.0)",
     "self.gm = torch.fx.symbolic_trace(nn.ReLU())"), "next(iter(model.gm.graph.nodes)).meta['by'] = 3.0")
_add("a node is renamed", _model("x * float(len(list(self.gm.graph.nodes)[1].name))",
     "self.gm = torch.fx.symbolic_trace(nn.ReLU())"), "list(model.gm.graph.nodes)[1].name = 'other_name'")
_add("a node's type is read", _model(_if("list(self.gm.graph.nodes)[0].type is None"),
     "self.gm = torch.fx.symbolic_trace(nn.ReLU())"), "list(model.gm.graph.nodes)[0].type = int")
_add("a function that a traced graph calls is edited", _model("self.gm(x)", "self.gm = torch.fx.symbolic_trace(Inner())", """
     class Inner(nn.Module):
         def forward(self, x):
             return leafy(x)
     def leafy(x):
         return x * BY
     BY = 2.0
     torch.fx.wrap('leafy')
     """), "app.BY = 3.0")
_add("a scripted function is another", _model("f(x)", "pass", "@torch.jit.script\ndef f(x):\n    return x * 2.0"), "",
     ("return x * 2.0", "return x * 3.0"))
_add("a scripted function is replaced by one of the same name", _model("f(x)", "pass", """
     def make(by: float):
         def f(x):
             return x * by
         return torch.jit.trace(f, torch.ones(3, 4))
     f = make(2.0)
     """), "app.f = app.make(3.0)")

# 6. State of torch, read or used.

for _doc, _read, _change in [
    ("order of attention kernels", "self.first_kernel() == KERNEL", "torch._C._set_sdp_priority_order(list(reversed(torch._C._get_sdp_priority_order())))"),
    ("view replay", "not torch._C._is_view_replay_enabled()", "torch._C._set_view_replay_enabled(True)"),
    ("multithreaded autograd", "torch._C._is_multithreading_enabled()", "torch._C._set_multithreading_enabled(False)"),
    ("forward gradients", "torch._C._is_fwd_grad_enabled()", "torch._C._set_fwd_grad_enabled(False)"),
    ("oneDNN", "torch.backends.mkldnn.enabled", "torch.backends.mkldnn.set_flags(False)"),
    ("NNPACK", "torch._C._get_nnpack_enabled()" , "torch.backends.nnpack.set_flags(False)"),
    ("opt_einsum", "torch.backends.opt_einsum.enabled is True or torch.backends.opt_einsum.strategy is None",
     "torch.backends.opt_einsum.enabled = not torch.backends.opt_einsum.enabled\ntorch.backends.opt_einsum.strategy = 'optimal'"),
    ("invariants of sparse tensors", "not torch.sparse.check_sparse_tensor_invariants.is_enabled()", "torch.sparse.check_sparse_tensor_invariants.enable()"),
    ("autocast's cache", "torch.is_autocast_cache_enabled()", "torch.set_autocast_cache_enabled(False)"),
    ("autocast dtype of XPU", "torch.get_autocast_dtype('xpu') is torch.float16", "torch.set_autocast_dtype('xpu', torch.bfloat16)"),
    ("autocast of CUDA", "not torch.is_autocast_enabled('cuda')", "torch.set_autocast_enabled('cuda', True)"),
    ("filling of empty tensors", "torch.utils.deterministic.fill_uninitialized_memory", "torch.utils.deterministic.fill_uninitialized_memory = False"),
    ("the backend's name for PrivateUse1", "torch._C._get_privateuse1_backend_name() == 'privateuseone'", "torch._C._rename_privateuse1_backend('atk')"),
    ("warn-always", "not torch.is_warn_always_enabled()", "torch.set_warn_always(True)"),
    ("the number of threads", "torch.get_num_threads() == 1", "torch.set_num_threads(3)"),
    ("the initial seed", "torch.initial_seed() == 0", "torch.manual_seed(1)"),
    ("print options", "torch._tensor_str.PRINT_OPTS.precision == 4", "torch.set_printoptions(precision=2)"),
    ("a conversion option of modules", "not torch.__future__.get_swap_module_params_on_conversion()", "torch.__future__.set_swap_module_params_on_conversion(True)"),
    ("anomaly detection", "not torch.is_anomaly_enabled()", "torch.autograd.set_detect_anomaly(True)"),
    ("anomaly detection's check of NaN", "torch.is_anomaly_check_nan_enabled()", "torch.autograd.set_detect_anomaly(False, check_nan=False)"),
    ("the fast path of attention", "torch.backends.mha.get_fastpath_enabled()", "torch.backends.mha.set_fastpath_enabled(False)"),
    ("the reduction in half precision", "not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()", "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)"),
    ("cuDNN's benchmark limit", "torch.backends.cudnn.benchmark_limit == 10", "torch.backends.cudnn.benchmark_limit = 11"),
    ("the fuser of TorchScript", "torch._C._jit_texpr_fuser_enabled()", "torch._C._jit_set_texpr_fuser_enabled(False)"),
    ("the sharing strategy", "torch.multiprocessing.get_sharing_strategy() == 'file_descriptor'", "torch.multiprocessing.set_sharing_strategy('file_system')"),
    ("a dispatch key that is excluded", "not torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutocastXPU)", "torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.AutocastXPU, True)"),
    ("torch functions of subclasses", "torch._C._is_torch_function_enabled()", "guard = torch._C.DisableTorchFunctionSubclass()\nguard.__enter__()"),
    ("the process group", "not torch.distributed.is_initialized()", "torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)"),
    ("a worker's information", "torch.utils.data.get_worker_info() is None", "import torch.utils.data._utils.worker as w\nw._worker_info = 1"),
    ("hooks of saved tensors", "torch._C._autograd._saved_tensors_hooks_is_enabled()", "torch._C._autograd._saved_tensors_hooks_disable('no')"),
    ("TorchScript's switch", "torch.jit._state._enabled.enabled", "torch.jit._state.disable()"),
]:
    if _doc.startswith("order"):
        _add(f"state of torch: {_doc}", _model("x * float(torch._C._get_sdp_priority_order()[0] + 2)"), _change)
    else:
        _add(f"state of torch: {_doc}", _model(_if(_read)), _change)

_add("autocast inside forward takes the default dtype, and this is another",
     _model("with torch.autocast('cpu'):\n    return self.lin(x)"), "torch.set_autocast_dtype('cpu', torch.float16)")
_add("the fast path of a transformer layer is switched off",
     _model("self.enc(x[None])", "self.enc = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).requires_grad_(False)"),
     "torch.backends.mha.set_fastpath_enabled(False)")
_add("one weight of a transformer layer needs gradients, so there is no fast path",
     _model("self.enc(x[None])", "self.enc = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).requires_grad_(False)"),
     "model.enc.norm2.bias.requires_grad_()")
_add("the key of autocast is excluded, so that autocast in forward does nothing",
     _model("with torch.autocast('cpu'):\n    return self.lin(x)"),
     "torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.AutocastCPU, True)")
_add("validation of distributions is switched on", _model("torch.distributions.Normal(x, self.s).cdf(x)",
     "self.register_buffer('s', torch.ones(4))"), "torch.distributions.Distribution.set_default_validate_args(True)",
     first="torch.distributions.Distribution.set_default_validate_args(False)\n")
_add("another divergence is registered for two distributions",
     _model("""
     n = torch.distributions.Normal
     return torch.distributions.kl_divergence(n(x, 1.0 + x * x, validate_args=False), n(x + 1, 2.0 + x * x, validate_args=False))
     """),
     "n = torch.distributions.Normal\ntorch.distributions.kl._KL_REGISTRY[n, n] = lambda p, q: p.loc * 3\n"
     "torch.distributions.kl._KL_MEMOIZE.clear()")
_add("a transform is registered for a constraint", _model("torch.distributions.biject_to(torch.distributions.constraints.positive)(x)"),
     "t = torch.distributions\nt.biject_to.register(t.constraints.positive, lambda c: t.transforms.SoftplusTransform())")

# 7. Replacements in torch.

for _doc, _forward, _change in [
    ("torch._C._nn.silu", "F.silu(x)", "torch._C._nn.silu = lambda x: x * 3"),
    ("torch._VF.cdist", "torch.functional.norm(x) * torch.cdist(x, x)", "torch._VF.cdist = lambda a, b, p, m: a * 3"),
    ("the namespace behind torch._VF", "torch.cdist(x, x)", "import types\ntorch._VF.vf = types.SimpleNamespace(cdist=lambda a, b, p, m: a * 3)"),
    ("a cell of max_pool1d's dispatcher", "F.max_pool1d(x, 2)",
     "for cell in torch.nn.functional.max_pool1d.__closure__:\n    if cell.cell_contents is torch.nn.functional._max_pool1d:\n        cell.cell_contents = lambda x, *a, **k: x * 3"),
    ("a cell of Tensor.__rsub__", "1.0 - x",
     "for cell in torch.Tensor.__rsub__.__closure__:\n    if callable(cell.cell_contents):\n        cell.cell_contents = lambda a, b: a * 3"),
    ("code of Tensor.__rsub__'s inner function", "1.0 - x", "torch.Tensor.__rsub__.__wrapped__.__code__ = (lambda self, other: self * 3).__code__"),
    ("defaults of leaky_relu", "F.leaky_relu(x - 5)", "torch.nn.functional.leaky_relu.__defaults__ = (0.5, False)"),
    ("defaults of Tensor.norm", "x.norm()", "torch.Tensor.norm.__defaults__ = (1, None, False, None)"),
    ("defaults of LayerNorm's constructor", "nn.LayerNorm(4, elementwise_affine=False)(x)",
     "d = torch.nn.LayerNorm.__init__.__defaults__\ntorch.nn.LayerNorm.__init__.__defaults__ = (0.5, *d[1:])"),
    ("torch.pi", "x * torch.pi", "torch.pi = 3.0"),
    ("torch.long as a name of a dtype", "x.to(torch.long)", "torch.long = torch.int32"),
    ("the F of the layers' module", "nn.ReLU()(x)", "import types\ntorch.nn.modules.activation.F = types.SimpleNamespace(relu=lambda x, inplace=False: x * 3)"),
    ("code of torch._jit_internal.is_scripting", "x * (3.0 if torch.jit.is_scripting() else 2.0)",
     "torch._jit_internal.is_scripting.__code__ = (lambda: True).__code__"),
    ("code of is_exporting", _if("torch.compiler.is_exporting()"), "torch.compiler.is_exporting.__code__ = (lambda: False).__code__"),
    ("a method on the functional tensors of an export", "x.sigmoid()",
     "import torch._subclasses.functional_tensor as f\nf.FunctionalTensor.sigmoid = lambda self: self * 3\ntorch._subclasses.FakeTensor.sigmoid = lambda self: self * 3"),
    ("torch.Tensor.T", "x.T", "torch.Tensor.T = property(lambda self: self * 3)"),
    ("__torch_function__ of Tensor", "torch.cdist(x, x)", "torch.Tensor.__torch_function__ = classmethod(lambda cls, f, t, a=(), k=None: a[0] * 3)"),
    ("a helper of multi-head attention", "nn.functional.scaled_dot_product_attention(*F._in_projection_packed(x[None], x[None], x[None], torch.ones(12, 4)))",
     "def other(q, k, v, w, b=None):\n    return q, k, v * 3\ntorch.nn.functional._in_projection_packed.__code__ = other.__code__"),
    ("Module.__getattr__", "self.lin(x)",
     "old = torch.nn.Module.__getattr__\ntorch.nn.Module.__getattr__ = lambda self, name: torch.relu if name == 'lin' else old(self, name)"),
    ("a metaclass's check of Parameter", _if("isinstance(self.lin.weight, nn.Parameter)"),
     "type(torch.nn.Parameter).__instancecheck__ = lambda cls, one: False"),
]:
    _add(f"replaced in torch: {_doc}", _model(_forward), _change)

_add("a function of torch was replaced by a partial, and its keywords change",
     _model("x * torch.ones(4)"), "torch.ones.keywords['dtype'] = torch.float64",
     first="import functools\ntorch.ones = functools.partial(torch.ones, dtype=torch.float32)\n")
_add("a function of torch was replaced by the app, and a value in its closure changes",
     _model("F.silu(x)", "pass", """
     def patch(by):
         def silu(x, inplace=False):
             return x * by
         F.silu = silu
     patch(2.0)
     """), "torch.nn.functional.silu.__closure__[0].cell_contents = 3.0")
_add("a method added to Tensor reads a global of the app",
     _model("x.scaled()", "pass", "BY = 2.0\ntorch.Tensor.scaled = lambda self: self * BY"), "app.BY = 3.0")
_add("a name of torch that forward takes by a default argument is patched in place",
     """
     class Model(nn.Module):
         def forward(self, x, act=F.softsign):
             return act(x)
     """, "torch.nn.functional.softsign.__code__ = (lambda input: input * 3).__code__")
_add("singledispatch gets a function for tensors",
     _model("f(x)", "pass", """
     import functools
     @functools.singledispatch
     def f(x):
         return x * 2
     """), "app.f.register(torch.Tensor, lambda x: x * 3)")
_add("a mode that forward enters replaces by a table that changes",
     _model("with self.mode:\n    return torch.sigmoid(x)", "self.mode = Mode()", """
     from torch.overrides import TorchFunctionMode
     TABLE = {}
     class Mode(TorchFunctionMode):
         def __torch_function__(self, func, types, args=(), kwargs=None):
             return TABLE.get(func, func)(*args, **(kwargs or {}))
     """), "app.TABLE[torch.sigmoid] = torch.relu")
