"""Programs, processes and libraries around a model between two compiles. They are added to ``field_scenarios``."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

M = _model
EXAMPLE = "x = torch.arange(12.0).reshape(3, 4)\n"

# --- traps: what operations do not show ---
_add("a lookup table held as a plain tensor is conjugated lazily",
     M("torch.view_as_real(x[:, :2] * self.table).sum(-1)", "self.table = torch.tensor([1 + 2j, 3 - 1j])"),
     "model.table = model.table.conj()")
_add("a plain tensor is replaced by the imaginary part of its lazy conjugate",
     M("x * self.table", "self.whole = torch.view_as_complex(torch.arange(8.0).reshape(4, 2))\nself.table = self.whole.imag"),
     "model.table = model.whole.conj().imag")
_add("a non-persistent complex buffer is conjugated lazily",
     M("torch.view_as_real(x[:, :2] * self.table).sum(-1)", "self.register_buffer('table', torch.tensor([1 + 2j, 3 - 1j]), persistent=False)"),
     "model.table = model.table.conj()")
_add("a complex weight is stored as its lazy conjugate",
     M("torch.view_as_real(x[:, :2] * self.w).sum(-1)", "self.w = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))"),
     "model.w = nn.Parameter(model.w.detach().conj()) if 'nn' in globals() else torch.nn.Parameter(model.w.detach().conj())")
_add("a complex input comes in as a lazy conjugate",
     M("torch.view_as_real(x * 2j)"), "",
     first="args = (torch.tensor([1 + 2j, 3 - 1j]),)", second="args = (torch.tensor([1 + 2j, 3 - 1j]).conj(),)", harmless=True)
_add("two plain tables that were copies and are both returned are now one tensor",
     M("x * 2, self.a, self.b", "self.a = torch.ones(4)\nself.b = torch.ones(4)"),
     "model.a = model.b")
_add("two buffers that were copies are now one, and one is incremented in place",
     M("self.a.add_(1)\nreturn x * self.b", "self.register_buffer('a', torch.ones(4))\nself.register_buffer('b', torch.ones(4))"),
     "model.a = model.b")
_add("a double-buffering model swaps its two buffers after each call",
     M("return x + self.a + self.b", "self.register_buffer('a', torch.ones(4))\nself.register_buffer('b', torch.zeros(4))"), "",
     ("return x + self.a + self.b", "y = x + self.a + self.b\n        self.a, self.b = self.b, self.a\n        return y"))
_add("a model now keeps its running state by assigning the buffer instead of throwing it away",
     M("y = self.state + x.mean(0)\nreturn x + y", "self.register_buffer('state', torch.ones(4))"), "",
     ("return x + y", "self.state = y\n        return x + y"))
_add("a model that assigned its state to a buffer now writes into it",
     M("y = self.state + x.mean(0)\nself.state = y\nreturn x + y", "self.register_buffer('state', torch.ones(4))"), "",
     ("self.state = y", "self.state.copy_(y)"))
_add("the last input is kept in a buffer by assignment",
     M("return x + self.seen", "self.register_buffer('seen', torch.ones(3, 4))"), "",
     ("return x + self.seen", "y = x + self.seen\n        self.seen = x\n        return y"))
_add("a debugging edit stores the last hidden state as an attribute",
     M("h = self.lin(x)\nreturn h * 2"), "", ("return h * 2", "self.last = h\n        return h * 2"), harmless=True)
_add("a debugging edit appends activations to a list on the model",
     M("h = self.lin(x)\nreturn h * 2", "self.seen = []"), "", ("return h * 2", "self.seen.append(h)\n        return h * 2"), harmless=True)
_add("a debugging edit puts activations in a dict of a submodule",
     M("h = self.lin(x)\nreturn h * 2", "self.lin.extra = {}"), "", ("return h * 2", "self.lin.extra['h'] = h\n        return h * 2"), harmless=True)
_add("a debugging edit stores an activation in a recorder object",
     M("h = self.lin(x)\nreturn h * 2", "self.rec = Recorder()", "class Recorder:\n    last = None"), "",
     ("return h * 2", "self.rec.last = h\n        return h * 2"), harmless=True)
_add("a constant tensor attribute is replaced in forward by a normalized one",
     M("s = self.scale / self.scale.sum()\nreturn x * s", "self.scale = torch.rand(4)"), "",
     ("return x * s", "self.scale = s\n        return x * s"), harmless=True)
_add("two activations of a table of types become one shared module",
     M("h = x\nfor act in (self.a, self.b):\n    h = torch.relu(h) - 1 if type(act) is nn.ReLU else h * 3\nreturn h",
       "self.a = nn.ReLU()\nself.b = nn.ReLU()"),
     "model.b = model.a")
_add("a registry keyed by the class of a block is used, and blocks begin to be shared",
     M("for b in self.blocks:\n    x = x * SCALES.get(type(b), 5.0)\nreturn x", "self.blocks = nn.ModuleList([Block(), Block()])",
       "class Block(nn.Module):\n    pass\nSCALES = {Block: 2.0}"),
     "model.blocks[1] = model.blocks[0]")
_add("isinstance becomes a comparison of types in a model with a shared block",
     M("for b in (self.first, self.again):\n    x = b(x) if isinstance(b, nn.Tanh) else x * 3\nreturn x", "self.first = self.again = nn.Tanh()"), "",
     ("isinstance(b, nn.Tanh)", "type(b) is nn.Tanh"))
_add("a tied block is compared with its twin by identity",
     M("return x * (2.0 if type(self.a) == type(self.b) else 3.0)", "self.a = nn.Tanh()\nself.b = nn.Tanh()\nself.c = nn.Tanh()"),
     "model.c = model.a")
_add("the explicit math attention operator becomes attention under a context that selects math",
     M("q = x.reshape(1, 1, 3, 4)\nreturn attend(q)", "", """
     def attend(q):
         return torch.ops.aten._scaled_dot_product_attention_math(q, q, q)[0]
     """), "", ("return torch.ops.aten._scaled_dot_product_attention_math(q, q, q)[0]",
                "from torch.nn.attention import sdpa_kernel, SDPBackend\n    with sdpa_kernel(SDPBackend.MATH):\n        return F.scaled_dot_product_attention(q, q, q)"))
_add("a hand-written dropout mask becomes F.dropout in training",
     M("return drop(x)", "", """
     def drop(x):
         m = torch.empty_like(x).bernoulli_(0.5)
         m.div_(0.5)
         return x * m
     """), "", ("m = torch.empty_like(x).bernoulli_(0.5)\n    m.div_(0.5)\n    return x * m", "return F.dropout(x, 0.5, True)"))
_add("a product folded by hand becomes one of three dimensions",
     M("return prod(x.reshape(1, 3, 4), self.w)", "self.w = nn.Parameter(torch.rand(4, 4))", """
     def prod(x, w):
         return torch.ops.aten._unsafe_view(x.view(3, 4).mm(w), [1, 3, 4])
     """), "", ("return torch.ops.aten._unsafe_view(x.view(3, 4).mm(w), [1, 3, 4])", "return x @ w"), harmless=True)
_add("a linear layer written with addmm on flattened rows becomes F.linear of three dimensions",
     M("return prod(x.reshape(1, 3, 4), self.lin.weight, self.lin.bias)", "", """
     def prod(x, w, b):
         return torch.addmm(b, x.view(3, 4), w.t()).view(1, 3, 4)
     """), "", ("return torch.addmm(b, x.view(3, 4), w.t()).view(1, 3, 4)", "return F.linear(x, w, b)"), harmless=True)
_add("an input is cast to its own type before it is changed in place",
     M("y = x.clone()\ny.add_(1)\nreturn y * 2"), "", ("y = x.clone()\n", "y = x.clone().to(torch.float32)\n"), harmless=True)
_add("a clone is made by contiguous of a contiguous tensor before the change in place",
     M("y = x.detach()\ny.mul_(3)\nreturn y + x"), "", ("x.detach()", "x.contiguous()"))
_add("the same tensor is passed for both arguments, and one is changed in place",
     "class Model(nn.Module):\n    def forward(self, a, b):\n        a.add_(1)\n        return b * 2\n", "",
     first="x = torch.ones(3)\nargs = (x.clone(), x.clone())", second="x = torch.ones(3)\nargs = (x, x)")
_add("a model asks whether its two arguments are one tensor, and they become one",
     "class Model(nn.Module):\n    def forward(self, a, b):\n        return a * 2 if a is b else a + b\n", "",
     first="x = torch.ones(3)\nargs = (x.clone(), x.clone())", second="x = torch.ones(3)\nargs = (x, x)", harmless=True)
_add("the argument is now the model's own weight, and the model asks",
     M("x * 2 if x is self.lin.weight else x * 3"), "",
     first="args = (torch.rand(4, 4, requires_grad=True),)", second="args = (torch.rand(4, 4, requires_grad=True),)", make="import app\nmodel = app.Model().eval()\nif 'own' in globals(): args = (model.lin.weight,)", harmless=True)
_add("the argument becomes the same tensor as the model's weight",
     M("x * 2 if x is self.lin.weight else x * 3"), "args = (model.lin.weight,)",
     first="args = (torch.nn.Parameter(torch.rand(4, 4)),)")
_add("the argument is a view of the second half of a batch, and the model asks for its offset",
     M("x * (1.0 + x.storage_offset())"), "args = (torch.arange(24.0).reshape(6, 4)[3:],)", harmless=True)
_add("the argument is a slice of a bigger tensor, and the model asks whether it is a view",
     M("x * (2.0 if x._is_view() else 3.0)"), "args = (torch.arange(12.0).reshape(1, 3, 4)[0],)", harmless=True)
_add("the argument has more memory behind it, and the model asks for the size of its storage",
     M("x * float(x.untyped_storage().nbytes())"), "args = (torch.arange(24.0).reshape(6, 4)[:3],)", harmless=True)
_add("a weight became a slice of a flat parameter, and the model asks for the offset",
     M("x * (1.0 + self.w.storage_offset())", "self.w = nn.Parameter(torch.zeros(8)[:4])"),
     "model.w = torch.nn.Parameter(torch.zeros(8)[4:])")
_add("the argument has a gradient from an earlier step, and the model asks for it",
     M("x * (2.0 if x.grad is None else 3.0)"), "args[0].grad = torch.ones(3, 4)", first="args = (torch.rand(3, 4, requires_grad=True),)")
_add("a weight has a gradient from training, and the model asks for it",
     M("self.lin(x) * (2.0 if self.lin.weight.grad is None else 3.0)"), "model.lin.weight.grad = torch.ones(4, 4)")
_add("a saliency head adds the weight's gradient, which it holds and training changed in place",
     M("x * self.w + self.saliency", "self.w = nn.Parameter(torch.rand(4))\nself.w.grad = torch.ones(4)\nself.saliency = self.w.grad"), "model.w.grad.mul_(2)")
_add("the input carries a scale as a Python attribute",
     M("x * getattr(x, 'scale', 1.0)"), "args[0].scale = 2.0", harmless=True)
_add("a weight carries a learning rate factor as a Python attribute, which forward uses",
     M("x * getattr(self.lin.weight, 'factor', 1.0)"), "model.lin.weight.factor = 2.0")
_add("a plain tensor carries a Python attribute that forward reads",
     M("x * getattr(self.t, 'factor', 1.0) + self.t", "self.t = torch.ones(4)"), "model.t.factor = 2.0")
_add("a table is transposed in memory, with equal values",
     M("(x @ self.t).contiguous(), self.t", "self.t = torch.arange(16.0).reshape(4, 4)"),
     "model.t = model.t.t().contiguous().t()")
_add("a table of zeros becomes another shape without elements",
     M("torch.cat([x, self.t.reshape(0, 4)])", "self.t = torch.zeros(0, 4)"), "model.t = torch.zeros(0, 8)")
_add("a table of bytes becomes a table of booleans with the same memory",
     M("x * self.t", "self.t = torch.tensor([1, 0, 1, 1], dtype=torch.uint8)"), "model.t = model.t.bool()")
_add("half precision constants are reinterpreted as bfloat16",
     M("x * self.t", "self.t = torch.tensor([1., 2., 3., 4.]).half()"), "model.t = model.t.view(torch.bfloat16)")
_add("a negative zero in a constant",
     M("1 / (self.t + x * 0)", "self.t = torch.tensor([0.0, 1.0, 2.0, 3.0])"), "model.t = torch.tensor([-0.0, 1.0, 2.0, 3.0])")
_add("a constant of one element loses its dimension",
     M("torch.stack([x.sum().reshape(self.t.shape), self.t])", "self.t = torch.tensor([2.0])"), "model.t = torch.tensor(2.0)")
_add("the number of non-zero rows of a pruned matrix is a factor",
     M("x * float(len(self.s['rows']))", "self.s = {'rows': torch.eye(3).to_sparse().indices()[0].tolist()}"), "model.s['rows'].pop()")
_add("the quantization step of a table is an attribute of its tensor, and is another",
     M("x * (self.ints * self.ints.step)", "self.ints = torch.arange(4)\nself.ints.step = 2.0"), "model.ints.step = 3.0")
_add("a constant table expanded from one row is now written out",
     M("x + self.t", "self.t = torch.ones(1, 4).expand(3, 4)"), "model.t = torch.ones(3, 4)")
_add("the model returns its table beside the result, and the table's stride is another",
     M("x + 1, self.t", "self.t = torch.ones(3, 4)"), "model.t = torch.ones(4, 3).t()")
_add("a returned list becomes a tuple", M("[x + 1, x + 2]"), "", ("[x + 1, x + 2]", "(x + 1, x + 2)"))
_add("a key in a returned dict is True instead of 1", M("{1: x + 1}"), "", ("{1:", "{True:"))
_add("the key of a returned dict is a text enum instead of a text",
     M("{K: x + 1}", top="import enum\nclass E(str, enum.Enum):\n    A = 'a'\nK = 'a'"), "", ("K = 'a'", "K = E.A"))
_add("an ordered dict is returned instead of a dict", M("D(a=x + 1)", top="import collections\nD = dict"), "", ("D = dict", "D = collections.OrderedDict"))
_add("the returned default dict has another factory",
     M("D(x + 1)", top="import collections\ndef D(v):\n    d = collections.defaultdict(list)\n    d['a'] = v\n    return d"), "", ("defaultdict(list)", "defaultdict(dict)"))
_add("the returned named tuple has other names of fields",
     M("Out(x + 1, x + 2)", top="import collections\nOut = collections.namedtuple('Out', 'logits hidden')"), "", ("'logits hidden'", "'scores hidden'"), harmless=True)
_add("the returned confidence threshold, a number, is another", M("x + 1, 0.5"), "", ("0.5", "0.25"))
_add("the returned version text is another", M("{'y': x + 1, 'version': VERSION}", top="VERSION = '1.0'"), "", ("'1.0'", "'1.1'"))
_add("a returned flag is 1 instead of True", M("x + 1, True"), "", ("True", "1"))
_add("a returned number is not a number any more", M("x + 1, self.bound", "self.bound = 1.0"), "model.bound = float('nan')")
_add("a returned bound is minus zero", M("x + 1, self.bound", "self.bound = 0.0"), "model.bound = -0.0")
_add("the second result is None when the loss is switched off", M("x + 1, (x + 1 if self.loss else None)", "self.loss = True"), "model.loss = False")
_add("the outputs are returned in the other order", M("x.sum(), x.sum()"), "", ("x.sum(), x.sum()", "x.sum(), x.clone().sum()"))
_add("the same result is returned twice instead of two computations",
     M("a = x + 1\nb = x + 1\nreturn a, b"), "", ("return a, b", "return a, a"))
_add("the model returns its input beside the result instead of a view of it", M("x * 2, x.view(3, 4)"), "", ("x.view(3, 4)", "x"))
_add("the model returns a weight instead of a constant with equal values",
     M("x * 2, self.c", "self.w = nn.Parameter(torch.ones(4), requires_grad=False)\nself.c = torch.ones(4)"), "model.c = model.w")
_add("the model returns the detached result beside the result", M("y = x * 2\nreturn y, y.detach()"), "", ("y.detach()", "y"))
_add("the model returns another of two equal weights",
     M("x * 2, self.a", "self.a = nn.Parameter(torch.ones(4))\nself.b = nn.Parameter(torch.ones(4))"), "", ("x * 2, self.a", "x * 2, self.b"))
_add("a data class registered for outputs gets another context",
     M("Out(x + 1, 'v1')", top="""
     class Out:
         def __init__(self, y, tag):
             self.y, self.tag = y, tag
     torch.utils._pytree.register_pytree_node(Out, lambda o: ([o.y], o.tag), lambda c, t: Out(c[0], t), serialized_type_name='app.Out')
     """), "", ("Out(x + 1, 'v1')", "Out(x + 1, 'v2')"))
_add("a class registered for outputs is flattened in the other order",
     M("Out(x + 1, x + 2)", top="""
     class Out:
         def __init__(self, a, b):
             self.a, self.b = a, b
     torch.utils._pytree.register_pytree_node(Out, lambda o: ([o.a, o.b], None), lambda c, t: Out(*c), serialized_type_name='app.Out')
     """), "", ("([o.a, o.b], None), lambda c, t: Out(*c)", "([o.b, o.a], None), lambda c, t: Out(c[1], c[0])"))
_add("a model appends the result to the list that it was given",
     "class Model(nn.Module):\n    def forward(self, x, outs):\n        y = x * 2\n        return y\n", "",
     ("return y", "outs.append(y)\n        return y"), first="args = (torch.ones(3), [torch.ones(2)])", harmless=True)
_add("a model puts the result in the dict that it was given",
     "class Model(nn.Module):\n    def forward(self, x, cache):\n        y = x * cache['k']\n        return y\n", "",
     ("return y", "cache['k'] = y\n        return y"), first="args = (torch.ones(3), {'k': torch.ones(3)})", harmless=True)
_add("a hook on the output's gradient is registered in forward",
     M("y = self.lin(x)\nreturn y"), "", ("return y", "y.register_hook(lambda g: g * 2) if y.requires_grad else None\n        return y"), harmless=True)
_add("an autograd function gets another backward",
     M("Fn.apply(x)", top="""
     class Fn(torch.autograd.Function):
         @staticmethod
         def forward(ctx, x):
             return x * 2
         @staticmethod
         def backward(ctx, g):
             return g * 2
     """), "", ("return g * 2", "return g * 3"), harmless=True)
_add("an autograd function marks its input as dirty and changes it in place",
     M("Fn.apply(x.clone())", top="""
     class Fn(torch.autograd.Function):
         @staticmethod
         def forward(ctx, x):
             return x.mul(2)
         @staticmethod
         def backward(ctx, g):
             return g * 2
     """), "", ("return x.mul(2)", "x.mul_(2)\n        ctx.mark_dirty(x)\n        return x"))

# --- more traps ---
_add("factors are kept in a dict keyed by modules, and a module comes to be used twice",
     M("return self.act(x) * self.factors.get(self.act, 7.0)", "self.act = nn.Tanh()\nself.again = nn.Tanh()\nself.factors = {self.act: 2.0}"),
     "model.again = model.act")
_add("blocks that are shared count the calls in a class attribute, which scales the result",
     M("Block.calls = 0\nself.a(x)\nreturn self.b(x)", "self.a = Block()\nself.b = Block()", """
     class Block(nn.Module):
         calls = 0
         def forward(self, x):
             type(self).calls += 1
             return x * float(1 + Block.calls)
     """), "model.b = model.a")
_add("products under autocast were written as casts by hand",
     M("return prod(x, self.lin.weight)", top="""
     def prod(x, w):
         return torch.mm(x.to(torch.bfloat16), w.to(torch.bfloat16))
     """), "", ("return torch.mm(x.to(torch.bfloat16), w.to(torch.bfloat16))", "with torch.autocast('cpu', torch.bfloat16):\n        return torch.mm(x, w)"))
_add("attention under a context that selects math loses the context",
     M("with kernel():\n    q = x.reshape(1, 1, 3, 4)\n    return F.scaled_dot_product_attention(q, q, q)", top="import contextlib\nfrom torch.nn.attention import sdpa_kernel, SDPBackend\ndef kernel():\n    return sdpa_kernel(SDPBackend.MATH)"), "",
     ("return sdpa_kernel(SDPBackend.MATH)", "return contextlib.nullcontext()"))
_add("attention selects the flash kernel explicitly, which was the default",
     M("with kernel():\n    q = x.reshape(1, 1, 3, 4)\n    return F.scaled_dot_product_attention(q, q, q)", top="import contextlib\nfrom torch.nn.attention import sdpa_kernel, SDPBackend\ndef kernel():\n    return contextlib.nullcontext()"), "",
     ("return contextlib.nullcontext()", "return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])"), harmless=True)
_add("attention chunks itself in a loop when math attention is switched off",
     M("q = x.reshape(1, 1, 3, 4)\nreturn F.scaled_dot_product_attention(q, q, q) * (1.0 if torch.backends.cuda.math_sdp_enabled() else 2.0)"),
     "import torch; torch.backends.cuda.enable_math_sdp(False)")
_add("a recurrent network runs with oneDNN switched off by a context in forward",
     M("with ctx():\n    return self.rnn(x.reshape(3, 1, 4))[0]", "self.rnn = nn.LSTM(4, 4)", "import contextlib\ndef ctx():\n    return contextlib.nullcontext()"), "",
     ("return contextlib.nullcontext()", "return torch.backends.mkldnn.flags(enabled=False)"))
_add("the causal mask is given as a flag instead of a tensor",
     M("q = x.reshape(1, 1, 3, 4)\nreturn F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(3, 3, dtype=torch.bool).tril())"), "",
     ("attn_mask=torch.ones(3, 3, dtype=torch.bool).tril()", "is_causal=True"))
_add("the scale of attention is written out although it is the default",
     M("q = x.reshape(1, 1, 3, 4)\nreturn F.scaled_dot_product_attention(q, q, q, scale=S)", top="S = None"), "", ("S = None", "S = 0.5"))
_add("a name of a gradient function decides", M("y = self.lin(x)\nreturn y * FACTORS.get(type(y.grad_fn).__name__, 1.0)", top="FACTORS = {}"), "app.FACTORS['AddmmBackward0'] = 2.0")
_add("a model asks whether an intermediate result is a leaf", M("y = self.lin(x)\nreturn y * ONE", top="ONE = 1.0"), "", ("return y * ONE", "return y * (1.0 if not y.is_leaf else 4.0)"), harmless=True)
_add("a model reads the version counter of its input", M("y = x * 2\nreturn y * ONE", top="ONE = 1.0"), "", ("return y * ONE", "return y * (1.0 if x._version == 0 else 4.0)"), harmless=True)
_add("a model tries to use NumPy and falls back when it cannot",
     M("return x * factor(x)", top="def factor(x):\n    return 2.0"), "", ("    return 2.0", "    try:\n        return float(x.numpy().max())\n    except Exception:\n        return 2.0"), harmless=True)
_add("a model formats its input into a log line and uses the length of the text",
     M("return x * float(len(text(x)))", top="def text(x):\n    return 'abcd'"), "", ("return 'abcd'", "return f'{x.shape}'"))
_add("an operation that fails is tried first, and caught",
     M("return mix(x)", top="def mix(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return x @ x\n    except RuntimeError:\n        return x * 2"))
_add("a reshape that is impossible is tried first, and caught",
     M("return mix(x)", top="def mix(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return x.reshape(5)\n    except RuntimeError:\n        return x * 2"))
_add("export-only code is added behind is_exporting", M("return x * (2.0 if not FLAG else 2.0)", top="FLAG = False"), "", ("(2.0 if not FLAG else 2.0)", "(3.0 if torch.compiler.is_exporting() else 2.0)"))
_add("code for TorchScript is added behind is_scripting", M("return x * 2.0"), "", ("x * 2.0", "x * (3.0 if torch.jit.is_scripting() else 2.0)"), harmless=True)
_add("the model checks that a size is large before it uses the fast path",
     M("return x * 2"), "", ("return x * 2", "torch._check(x.shape[0] == 3)\n        return x * 2"), harmless=True)
_add("an assertion on values is added", M("y = x * 2\nreturn y"), "", ("return y", "torch._assert_async((y > -1).all(), 'negative')\n        return y"))
_add("the text of an assertion on values is another", M("y = x * 2\ntorch._assert_async((y > -1).all(), MSG)\nreturn y", top="MSG = 'negative'"), "app.MSG = 'less than zero'")

DYN = "dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=64)},)"
_add("a check bounds the dynamic batch", M("return x * 2"), "", ("return x * 2", "torch._check(x.shape[0] <= 32)\n        return x * 2"), first=DYN)
_add("a branch on the dynamic batch moves where no batch comes", M("return x * 2 if x.shape[0] < 150 else x * 3"), "", ("< 150", "< 140"), first=DYN, harmless=True)
_add("a batch must be even now", M("return x * 2"), "", ("return x * 2", "assert x.shape[0] % 2 == 0\n        return x * 2"), first=DYN.replace("64)}", "64)}") + "\nargs = (torch.ones(4, 4),)")
_add("a dynamic size is compared with itself in a useless branch", M("return x * 2"), "", ("return x * 2", "return x * 2 if x.shape[0] == x.size(0) else x * 3"), first=DYN, harmless=True)
_add("the maximum of a dynamic dimension is raised", M("return x * 2"), "", first=DYN, second=DYN.replace("64", "128"))
_add("the name of a dynamic dimension is another", M("return x * 2"), "", first=DYN, second=DYN.replace("'b'", "'batch'"))
_add("a second argument has the same dynamic dimension instead of one of its own",
     "class Model(nn.Module):\n    def forward(self, x, y):\n        return x * 2, y * 3\n", "",
     first="a, b = torch.export.Dim('a', min=2), torch.export.Dim('b', min=2)\nargs = (torch.ones(3, 4), torch.ones(3, 4))\ndynamic_shapes = ({0: a}, {0: b})",
     second="a = b = torch.export.Dim('a', min=2)\nargs = (torch.ones(3, 4), torch.ones(3, 4))\ndynamic_shapes = ({0: a}, {0: b})")
_add("the example batch is another under a dynamic dimension", M("return x * 2"), "", first=DYN, second=DYN + "\nargs = (torch.ones(5, 4),)")
_add("the example batch is one that a hint of the model depends on",
     M("n = x.shape[0]\nhint = n.node.hint if isinstance(n, torch.SymInt) else n\nreturn x * float(hint)"), "", first=DYN, second=DYN + "\nargs = (torch.ones(5, 4),)")
_add("a mean over the batch is divided by a number instead of the size", M("return x.sum(0) / x.shape[0]"), "", ("/ x.shape[0]", "/ 3"), first=DYN)
_add("positions are made up to a fixed length instead of the dynamic one", M("return x + torch.arange(x.shape[0]).unsqueeze(1)"), "",
     ("torch.arange(x.shape[0]).unsqueeze(1)", "self.pos[:x.shape[0]].unsqueeze(1)"), ("self.lin = nn.Linear(4, 4)", "self.lin = nn.Linear(4, 4)\n        self.pos = torch.arange(64)"), first=DYN)
_add("the branch of a dynamic size is decided by guard_or_false", M("return x * 2 if x.shape[0] > 1 else x * 3", top="from torch.fx.experimental.symbolic_shapes import guard_or_false"), "",
     ("x.shape[0] > 1", "guard_or_false(x.shape[0] > 10)"), first=DYN)
_add("rows are selected by a mask, and a check bounds their number",
     M("y = x[x[:, 0] > 2]\nreturn y * 2"), "", ("return y * 2", "torch._check(y.shape[0] <= 2)\n        return y * 2"))
_add("a number of repeats comes from a tensor and is bounded in another way",
     "class Model(nn.Module):\n    def forward(self, x, n):\n        k = n.item()\n        torch._check(k >= 0)\n        torch._check(k <= 3)\n        return x[:, 0].new_zeros(k) + 1\n", "",
     ("k <= 3", "k <= 9"), first="args = (torch.ones(3, 4), torch.tensor(2))")
_add("the output has a dynamic size as a number, plus one", M("return x * 2, x.shape[0]"), "", ("x.shape[0]", "x.shape[0] + 1"), first=DYN)
_add("the result is reshaped with minus one instead of the size", M("return x.reshape(x.shape[0], 2, 2)"), "", ("x.shape[0], 2, 2", "-1, 2, 2"), first=DYN, harmless=True)
_add("a dynamic batch is split in halves", M("h = x.shape[0] // 2\nreturn x[:h].sum(0)"), "", ("// 2", "// 3"), first="dynamic_shapes = ({0: torch.export.Dim.AUTO},)\nargs = (torch.ones(8, 4),)")
_add("the padding of a dynamic batch goes up to a multiple of another number", M("n = -x.shape[0] % 4\nreturn F.pad(x, (0, 0, 0, n))"), "", ("% 4", "% 8"), first=DYN)

# --- configuration and files ---
def conf(name, before, after, read, use="x * by()", imports="", **more):
    """Return what _add takes for a file that is edited."""
    return (M(use, top=f"{imports}\nfrom pathlib import Path\nHERE = Path(__file__).parent\ndef by():\n    {read}\n") + f"--- {name}\n{before}\n", "", (before, after))
_add("a rate in a JSON file is edited", *conf("c.json", '{"by": 2.0}', '{"by": 2.5}', "return json.loads((HERE / 'c.json').read_text())['by']", imports="import json"))
_add("a rate in a JSON file loses its decimal point and is an integer", *conf("c.json", '{"by": 2.0}', '{"by": 2}', "return json.loads((HERE / 'c.json').read_text())['by']", imports="import json"))
_add("keys of a JSON file are sorted by a formatter", *conf("c.json", '{"z": 1, "by": 2.0}', '{"by": 2.0, "z": 1}', "return json.loads((HERE / 'c.json').read_text())['by']", imports="import json"), harmless=True)
_add("layers are built in the order of keys in a JSON file, which a formatter sorts",
     *conf("c.json", '{"relu": 1, "exp": 1}', '{"exp": 1, "relu": 1}', "return json.loads((HERE / 'c.json').read_text())", use="for name in by():\n    x = getattr(torch, name)(x)\nreturn x", imports="import json"))
_add("a number in a YAML file loses its point and YAML reads a text", *conf("c.yaml", "eps: 1.0e-3", "eps: 1e-3", "return yaml.safe_load((HERE / 'c.yaml').read_text())['eps']", use="x + (0.5 if isinstance(by(), str) else by())", imports="import yaml"))
_add("a switch in a YAML file is off, which YAML reads as a boolean", *conf("c.yaml", "bias: 'off'", "bias: off", "return yaml.safe_load((HERE / 'c.yaml').read_text())['bias']", use="x + 1 if by() else x - 1", imports="import yaml"))
_add("an anchor in a YAML file is overridden by a merge", *conf("c.yaml", "base: &b {by: 2}\nm: {<<: *b}", "base: &b {by: 2}\nm: {<<: *b, by: 3}", "return yaml.safe_load((HERE / 'c.yaml').read_text())['m']['by']", imports="import yaml"))
_add("a TOML table gets a value for an optional key", *conf("pyproject.toml", "[tool.app]\nname = 'a'", "[tool.app]\nname = 'a'\nby = 4.0", "return tomllib.loads((HERE / 'pyproject.toml').read_text())['tool']['app'].get('by', 2.0)", imports="import tomllib"))
_add("an ini file interpolates another option", *conf("c.ini", "[DEFAULT]\nbase=2\n[m]\nby=%(base)s.5", "[DEFAULT]\nbase=3\n[m]\nby=%(base)s.5", "c = configparser.ConfigParser(); c.read(HERE / 'c.ini'); return c.getfloat('m', 'by')", imports="import configparser"))
_add("the columns of a CSV file of means are in another order", *conf("c.csv", "mean,std\n1,2", "std,mean\n1,2", "return next(csv.DictReader((HERE / 'c.csv').open()))", use="(x - float(by()['mean'])) / float(by()['std'])", imports="import csv"))
_add("the columns of a CSV file are in another order with their values", *conf("c.csv", "mean,std\n1,2", "std,mean\n2,1", "return next(csv.DictReader((HERE / 'c.csv').open()))", use="(x - float(by()['mean'])) / float(by()['std'])", imports="import csv"), harmless=True)
_add("an XML attribute of a layer is edited", *conf("c.xml", "<net><layer kind='relu'/></net>", "<net><layer kind='tanh'/></net>", "return [l.get('kind') for l in ET.parse(HERE / 'c.xml').getroot()]", use="for k in by():\n    x = getattr(torch, k)(x)\nreturn x", imports="import xml.etree.ElementTree as ET"))
_add("a vocabulary file gets a word, and the padding goes to its end", *conf("vocab.txt", "a\nb\npad", "a\nb\nc\npad", "return (HERE / 'vocab.txt').read_text().split().index('pad')", use="x * float(by())"))
_add("a label map is renumbered", *conf("labels.json", '{"cat": 0, "dog": 2}', '{"cat": 2, "dog": 0}', "return list(json.loads((HERE / 'labels.json').read_text()).values())", use="x[:, by()]", imports="import json"))
_add("only the names in a label map change", *conf("labels.json", '{"cat": 0, "dog": 2}', '{"lion": 0, "wolf": 2}', "return list(json.loads((HERE / 'labels.json').read_text()).values())", use="x[:, by()]", imports="import json"), harmless=True)
_add("a stop list is deduplicated through a set", M("x[:, stops()]", top="def stops():\n    return sorted(['3', '1', '3'].__iter__(), key=int) and [int(s) for s in ['3', '1', '3']]"), "", ("[int(s) for s in ['3', '1', '3']]", "[int(s) for s in dict.fromkeys(['3', '1', '3'])]"))
_add("a threshold in a calibration pickle is another", M("x.clamp(max=by())", top="import pickle\nfrom pathlib import Path\ndef by():\n    return pickle.loads(Path(__file__).with_name('c.pkl').read_bytes())['t']"), "",
     first="import pickle, pathlib\npathlib.Path('c.pkl').write_bytes(pickle.dumps({'t': 3.0}))", second="import pickle, pathlib\npathlib.Path('c.pkl').write_bytes(pickle.dumps({'t': 4.0}))")
_add("a NumPy file of mel filters is made again with another number of bins", M("x @ torch.from_numpy(bank())", top="import numpy as np\nfrom pathlib import Path\ndef bank():\n    return np.load(Path(__file__).with_name('mel.npy'))"), "",
     first="import numpy\nnumpy.save('mel.npy', numpy.arange(8, dtype='float32').reshape(4, 2))", second="import numpy\nnumpy.save('mel.npy', numpy.arange(8, dtype='float32').reshape(4, 2) * 2)")
_add("a NumPy table that a constant tensor shares is changed in place", M("x * self.t", "self.table = np.ones(4, dtype='float32')\nself.t = torch.from_numpy(self.table)", "import numpy as np"), "model.table[1] = 5")
_add("a NumPy table is given in Fortran order with the same values", M("x @ torch.as_tensor(self.table)", "self.table = np.arange(16, dtype='float32').reshape(4, 4)", "import numpy as np"), "import numpy as np; model.table = np.asfortranarray(model.table)")
_add("a safetensors file of class priors is written again", M("x * self.prior", "self.prior = safetensors.torch.load_file('prior.safetensors')['p']", "import safetensors.torch"), "",
     first="import safetensors.torch as s\ns.save_file({'p': torch.ones(4)}, 'prior.safetensors')", second="import safetensors.torch as s\ns.save_file({'p': torch.arange(4.)}, 'prior.safetensors')")
_add("a checkpoint of statistics that the constructor loads is replaced", M("return (x - self.stats['mean']) / 2", "self.stats = torch.load('stats.pt')"), "",
     first="torch.save({'mean': torch.ones(4)}, 'stats.pt')", second="torch.save({'mean': torch.zeros(4)}, 'stats.pt')")
_add("the newest file by name in a folder of calibrations is another", M("x * newest()", top="from pathlib import Path\ndef newest():\n    return float(sorted(Path(__file__).parent.glob('cal/*.txt'))[-1].read_text())") + "--- cal/2024-01.txt\n2.0\n", added="--- cal/2024-02.txt\n3.0\n")
_add("a link called current points to another release", M("x * float(open('current/by.txt').read())"), "",
     first="import os\nos.makedirs('r1'); open('r1/by.txt', 'w').write('2.0')\nos.makedirs('r2'); open('r2/by.txt', 'w').write('3.0')\nos.symlink('r1', 'current')", second="import os\nos.remove('current'); os.symlink('r2', 'current')")
_add("a file that switches maintenance on appears", M("x * (2.0 if os.path.exists('maintenance') else 1.0)", top="import os"), "open('maintenance', 'w').close()")
_add("the working directory is another, with another relative file", M("x * float(open('by.txt').read())"), "import os; os.chdir('sub')", first="import os\nos.makedirs('sub', exist_ok=True); open('by.txt', 'w').write('2.0'); open('sub/by.txt', 'w').write('3.0')")
_add("data inside the package is read through importlib.resources", M("x * by()", top="from importlib import resources\ndef by():\n    return float(resources.files('pkg').joinpath('by.txt').read_text())") + "--- pkg/__init__.py\n--- pkg/by.txt\n2.0\n", "", ("2.0\n", "3.0\n"))
_add("an installed plugin offers itself by an entry point", M("for e in sorted(entry_points(group='app.layers'), key=lambda e: e.name):\n    x = e.load()(x)\nreturn x * 2", top="from importlib.metadata import entry_points"),
     added="--- plug.py\ndef double(x):\n    return x + 1\n--- plug-1.0.dist-info/METADATA\nMetadata-Version: 2.1\nName: plug\nVersion: 1.0\n--- plug-1.0.dist-info/entry_points.txt\n[app.layers]\nd = plug:double\n")
_add("the version of a helper package decides about a workaround", M("x * (2.0 if version('helper') < '2' else 3.0)", top="from importlib.metadata import version") + "--- helper-1.0.dist-info/METADATA\nMetadata-Version: 2.1\nName: helper\nVersion: 1.0\n", "", ("Version: 1.0", "Version: 2.0"))
_add("an optional package becomes importable", M("x * SCALE", top="try:\n    from fastops import SCALE\nexcept ImportError:\n    SCALE = 2.0"), added="--- fastops.py\nSCALE = 3.0\n")
_add("a helper package is upgraded on the path, and its default axis is another", M("helper.norm(x)", top="import helper") + "--- helper/__init__.py\nfrom .core import norm\n--- helper/core.py\ndef norm(x, dim=0):\n    return x.softmax(dim)\n", "", ("dim=0", "dim=1"))
_add("a helper package is upgraded and deprecates a function with a warning", M("helper.norm(x)", top="import helper") + "--- helper.py\ndef norm(x):\n    return x.softmax(0)\n", "", ("    return x.softmax(0)", "    import warnings; warnings.warn('use norm2', DeprecationWarning)\n    return x.softmax(0)"), harmless=True)
_add("warnings are errors in CI, and a deprecation is caught as a failure", M("try:\n    warnings.warn('old', DeprecationWarning)\n    y = x * 2\nexcept DeprecationWarning:\n    y = x * 3\nreturn y", top="import warnings"), "import warnings; warnings.simplefilter('error', DeprecationWarning)")
_add("the log level is debug, and the debug branch rounds", M("log.debug('x')\nreturn x.round() if log.isEnabledFor(logging.DEBUG) else x * 2", top="import logging\nlog = logging.getLogger('app')"), "import logging; logging.getLogger('app').setLevel(logging.DEBUG)")
_add("the log level is debug, and the branch only logs", M("if log.isEnabledFor(logging.DEBUG):\n    log.debug('shape %s', x.shape)\nreturn x * 2", top="import logging\nlog = logging.getLogger('app')"), "import logging; logging.getLogger('app').setLevel(logging.DEBUG)", harmless=True)
_add("a logging filter counts records, and the model reads the count", M("log.warning('call')\nreturn x * float(1 + COUNT.n)", top="import logging\nlog = logging.getLogger('app')\nclass COUNT(logging.Filter):\n    n = 0\n    def filter(self, record):\n        return False\n"), "app.COUNT.n = 2")
_add("an argument of the command line chooses the activation", M("(torch.relu if '--relu' in sys.argv else torch.tanh)(x)", top="import sys"), "import sys; sys.argv.append('--relu')")
_add("a default of an argument parser is another", M("x * parse().by", top="import argparse\ndef parse():\n    p = argparse.ArgumentParser()\n    p.add_argument('--by', type=float, default=2.0)\n    return p.parse_args([])"), "", ("default=2.0", "default=3.0"))
_add("a variable of the environment is read when the module is imported", M("x * BY", top="import os\nBY = float(os.environ.get('APP_BY', '2'))"), env={"APP_BY": "3"})
_add("a variable of the environment is read at each call", M("x * float(os.environ.get('APP_CALL_BY', '2'))", top="import os"), "import os; os.environ['APP_CALL_BY'] = '3'")
_add("an environment variable is set to its default", M("x * float(os.environ.get('APP_CALL_BY', '2'))", top="import os"), "import os; os.environ['APP_CALL_BY'] = '2'", harmless=True)
_add("the locale's decimal comma is parsed", M("x * float('2,5'.replace(sep(), '.') if sep() in '2,5' else 4)", top="SEP = ','\ndef sep():\n    return SEP"), "app.SEP = ';'")
_add("the time zone decides whether it is night, and the night model dims", M("x * (1.0 if time.localtime(0).tm_hour < 6 else 0.5)", top="import os, time\nos.environ['TZ'] = os.environ.get('APP_TZ', 'UTC')\ntime.tzset()"), env={"APP_TZ": "Asia/Tokyo"})
_add("a feature flag starts at a date, which has come", M("x * (3.0 if today() >= date(2030, 1, 1) else 2.0)", top="from datetime import date\ndef today():\n    return date(2029, 12, 31)"), "", ("date(2029, 12, 31)", "date(2030, 1, 1)"))

# --- Python around the model ---
_add("a function of the module is patched by mock", M("x * by()", top="def by():\n    return 2.0"), "from unittest import mock\nmock.patch('app.by', return_value=3.0).start()")
_add("a mock with a side effect gives another value at each call", M("x * by() + by()", top="def by():\n    return 2.0"), "from unittest import mock\nmock.patch('app.by', side_effect=lambda v=iter([2.0, 3.0] * 50): next(v)).start()")
_add("math.sqrt is patched by a fast approximation", M("x / math.sqrt(x.shape[1])", top="import math"), "import math\nmath.sqrt = lambda v: v ** 0.5 + 0.001")
_add("F.relu is patched to be leaky", M("F.relu(x - 4)"), "import torch.nn.functional as F\nF.relu = lambda x, inplace=False: F.leaky_relu(x, 0.1)")
_add("the method softmax of tensors is patched to use another dimension", M("x.softmax(0)"), "old = torch.Tensor.softmax\ntorch.Tensor.softmax = lambda self, dim: old(self, 1)")
_add("the operator for division of tensors is patched for safe division", M("x / 3"), "old = torch.Tensor.__truediv__\ntorch.Tensor.__truediv__ = lambda a, b: old(a, b + 1e-6)")
_add("nn.Module.__call__ is patched by a profiler that keeps the result", M("self.lin(x)"), "from torch import nn\nold = nn.Module.__call__\nnn.Module.__call__ = lambda self, *a, **k: old(self, *a, **k)", harmless=True)
_add("nn.Module.__call__ is patched by a tool that casts the results of layers", M("self.lin(x)"), "from torch import nn\nold = nn.Module.__call__\nnn.Module.__call__ = lambda self, *a, **k: old(self, *a, **k).double()")
_add("the forward of nn.Linear is patched to add noise shaping", M("self.lin(x)"), "from torch import nn\nold = nn.Linear.forward\nnn.Linear.forward = lambda self, x: old(self, x).round()")
_add("a method is bound to one instance", M("self.step(x)", more="def step(self, x):\n    return x * 2"), "import types\nmodel.step = types.MethodType(lambda self, x: x * 3, model)")
_add("forward is replaced on the instance", M("x * 2"), "model.forward = lambda x: x * 3")
_add("the class of the model is exchanged under it", M("x * 2", more="pass\nclass Other(nn.Module):\n    def forward(self, x):\n        return x * 3"), "model.__class__ = app.Model.Other")
_add("a mixin is put in front in the bases of a layer", M("self.scale(x)", more="", base="A, nn.Module", top="class A:\n    def scale(self, x):\n        return x * 2\nclass B:\n    def scale(self, x):\n        return super().scale(x) * 3"), "", ("class Model(A, nn.Module)", "class Model(B, A, nn.Module)"))
_add("the bases of a helper class are assigned", M("H().scale(x)", top="class A:\n    def scale(self, x):\n        return x * 2\nclass B:\n    def scale(self, x):\n        return x * 3\nclass H(A):\n    pass"), "app.H.__bases__ = (app.B,)")
_add("a metaclass counts classes, and one more is defined", M("x * float(Meta.n)", top="class Meta(type):\n    n = 0\n    def __new__(m, *a):\n        Meta.n += 1\n        return super().__new__(m, *a)\nclass A(metaclass=Meta):\n    pass"), "class B(metaclass=app.Meta):\n    pass")
_add("subclasses register themselves, and a notebook cell defines one", M("for c in Op.all:\n    x = c().run(x)\nreturn x * 2", top="class Op:\n    all = []\n    def __init_subclass__(cls):\n        Op.all.append(cls)\n"), "class Neg(app.Op):\n    def run(self, x):\n        return -x")
_add("a notebook cell defines a class again with the same name, and the registry by name has the new one", M("for c in Op.all.values():\n    x = c().run(x)\nreturn x", top="class Op:\n    all = {}\n    def __init_subclass__(cls):\n        Op.all[cls.__name__] = cls\nclass Neg(Op):\n    def run(self, x):\n        return -x\n"), "class Neg(app.Op):\n    def run(self, x):\n        return -x * 2")
_add("a notebook cell defines a class again, and an old instance compares unequal", M("x * 2 if isinstance(self.op, Op) else x * 3", "self.op = Op()", "class Op:\n    pass"), "app.Op = type('Op', (), {})")
_add("a descriptor converts units on access", M("x * self.dist", more="dist = Km()", top="class Km:\n    def __get__(self, o, t=None):\n        return o.__dict__.get('metres', 2000) / 1000.0\n"), "model.metres = 3000")
_add("a property is overridden by a subclass", M("x * self.by", more="@property\ndef by(self):\n    return 2.0"), "model.__class__ = type('Sub', (app.Model,), {'by': property(lambda self: 3.0)})")
_add("an attribute that __getattr__ made up is set", M("x * self.cfg.by", "self.cfg = Cfg()", "class Cfg:\n    def __getattr__(self, name):\n        return 2.0"), "model.cfg.by = 3.0")
_add("__getattribute__ starts to look up overrides", M("x * CFG.by", top="class Cfg:\n    by = 2.0\nOVER = {}\nCFG = Cfg()"), "app.Cfg.__getattribute__ = lambda self, n: 3.0")
_add("a class gets a __missing__ method for absent keys", M("x * T()['a']", top="class T(dict):\n    def __missing__(self, k):\n        return 2.0"), "app.T.__missing__ = lambda self, k: float(len(k)) + 2")
_add("a value in __slots__ of a helper changes", M("x * self.h.by", "self.h = H()", "class H:\n    __slots__ = ('by',)\n    def __init__(self):\n        self.by = 2.0"), "model.h.by = 3.0")
_add("the defaults of a function are assigned", M("scale(x)", top="def scale(x, by=2.0):\n    return x * by"), "app.scale.__defaults__ = (3.0,)")
_add("keyword-only defaults of a function are changed in place", M("scale(x)", top="def scale(x, *, by=2.0):\n    return x * by"), "app.scale.__kwdefaults__['by'] = 3.0")
_add("the code object of a function is exchanged by a hot reloader", M("scale(x)", top="def scale(x):\n    return x * 2"), "def new(x):\n    return x * 3\napp.scale.__code__ = new.__code__")
_add("a cell of a closure is written", M("f(x)", top="def make(by):\n    def f(x):\n        return x * by\n    return f\nf = make(2.0)"), "app.f.__closure__[0].cell_contents = 3.0")
_add("a late-binding loop variable in lambdas is fixed", M("for f in FS:\n    x = f(x)\nreturn x", top="FS = [lambda x: x * i for i in (2.0, 3.0)]"), "", ("lambda x: x * i", "lambda x, i=i: x * i"))
_add("a mutable default argument has collected a value", M("return x * sum(collect())", top="def collect(seen=[2.0]):\n    return seen"), "app.collect().append(1.0)")
_add("a context variable has another value in this task", M("x * BY.get()", top="import contextvars\nBY = contextvars.ContextVar('by', default=2.0)"), "app.BY.set(3.0)")
_add("the model is compiled in a copied context, where a variable is set", M("x * BY.get()", top="import contextvars\nBY = contextvars.ContextVar('by', default=2.0)"), "ctx = __import__('contextvars').copy_context()\nctx.run(app.BY.set, 3.0)", harmless=True)
_add("a thread-local setting is there only in the main thread", M("x * getattr(T, 'by', 2.0)", top="import threading\nT = threading.local()"), "app.T.by = 3.0")
_add("a value is computed in a worker thread that reads a global", M("import concurrent.futures as c\nwith c.ThreadPoolExecutor(1) as p:\n    return x * p.submit(lambda: BY).result()", top="BY = 2.0"), "app.BY = 3.0")
_add("forward runs a coroutine that awaits a configuration", M("x * asyncio.run(get())", top="import asyncio\nBY = 2.0\nasync def get():\n    await asyncio.sleep(0)\n    return BY"), "app.BY = 3.0")
_add("a generator that was primed gets another value by send", M("x * self.g.send(None) if False else x * self.state()", "self.now = 2.0", more="def state(self):\n    return self.now"), "def g():\n    global model\n    v = yield 1\n    model.now = v\n    yield 2\nit = g(); next(it); it.send(3.0)")
_add("an lru_cache holds an old reading of a file", M("x * read()", top="import functools\n@functools.lru_cache\ndef read():\n    return float(open('by.txt').read())"), "open('by.txt', 'w').write('3.0')", first="open('by.txt', 'w').write('2.0')")
_add("an lru_cache of a reading of a file is cleared after the file changed", M("x * read()", top="import functools\n@functools.lru_cache\ndef read():\n    return float(open('by.txt').read())"), "open('by.txt', 'w').write('3.0'); app.read.cache_clear()", first="open('by.txt', 'w').write('2.0')")
_add("a cached property is deleted, and computed from a new rate", M("x * self.h.total", "self.h = H()", "import functools\nclass H:\n    rate = 2.0\n    @functools.cached_property\n    def total(self):\n        return self.rate * 2"), "model.h.rate = 5.0; model.h.__dict__.pop('total', None)")
_add("a cached property keeps its old value although the rate is another", M("self.h.total\nreturn x * self.h.total", "self.h = H()\nself.h.total", "import functools\nclass H:\n    rate = 2.0\n    @functools.cached_property\n    def total(self):\n        return self.rate * 2"), "model.h.rate = 5.0", harmless=True)
_add("a memo by shape holds a tensor of positions from another base", M("return x + positions(4)", top="MEMO = {}\nBASE = 1.0\ndef positions(n):\n    if n not in MEMO:\n        MEMO[n] = torch.tensor([BASE * i for i in range(n)])\n    return MEMO[n]\npositions(4)"), "app.BASE = 2.0; app.MEMO.clear(); app.positions(4)")
_add("a memo keyed by id of an object finds the entry of an earlier one", M("x * MEMO.get(id(self.cfg), 3.0)", "self.cfg = object()", "MEMO = {}"), "app.MEMO[id(model.cfg)] = 2.0")
_add("a weak dictionary loses its entry when the owner is deleted", M("x * float(1 + len(W))", top="import weakref\nclass O:\n    pass\nOWNER = O()\nW = weakref.WeakKeyDictionary({OWNER: 1})"), "del app.OWNER; import gc; gc.collect()")
_add("a model behaves in another way at its first call, and was called", M("if self.first:\n    self.first = False\n    return x * 2\nreturn x * 3", "self.first = True"), "model(*args)")
_add("the calls are counted in a global, and the model was called twice", M("N[0] += 1\nreturn x * (2.0 if N[0] < 8 else 3.0)", top="N = [0]"), "app.N[0] += 10")
_add("a counter in a class attribute decides about warm-up", M("Model.calls += 1\nreturn x * (2.0 if Model.calls < 100 else 3.0)", more="calls = 0"), "app.Model.calls = 1000")
_add("a schedule was stepped by training", M("x * self.temp", "self.temp = 2.0", more="def step(self):\n    self.temp *= 0.5"), "model.step()")
_add("layers are made lazily at the first call by a registry outside of the model", M("return get('a')(x)", top="POOL = {}\ndef get(n):\n    if n not in POOL:\n        POOL[n] = nn.ReLU() if KIND == 'relu' else nn.Tanh()\n    return POOL[n]\nKIND = 'relu'"), "app.KIND = 'tanh'; app.POOL.clear()")
_add("a singleton is reset between tests", M("x * S.get().by", top="class S:\n    one = None\n    by = 2.0\n    @classmethod\n    def get(cls):\n        if cls.one is None:\n            cls.one = cls()\n        return cls.one"), "app.S.get().by = 3.0; app.S.one = None; app.S.by = 4.0")
_add("one test leaves a value on a singleton for the next", M("x * S.get().by", top="class S:\n    one = None\n    by = 2.0\n    @classmethod\n    def get(cls):\n        if cls.one is None:\n            cls.one = cls()\n        return cls.one"), "app.S.get().by = 3.0")
_add("a module is reloaded after an edit", M("x * rates.BY", top="import rates") + "--- rates.py\nBY = 2.0\n", "import importlib, rates, pathlib\npathlib.Path('rates.py').write_text('BY = 3.0')\nimportlib.reload(rates)")
_add("a module is reloaded after an edit, but the name was imported from it before", M("x * BY", top="import rates\nfrom rates import BY") + "--- rates.py\nBY = 2.0\n", "import importlib, rates, pathlib\npathlib.Path('rates.py').write_text('BY = 30.0')\nimportlib.reload(rates)")
_add("a module gets a __getattr__ for a moved constant", M("x * getattr(old, 'BY', 2.0)", top="import old") + "--- old.py\nX = 1\n", "", ("X = 1", "X = 1\ndef __getattr__(name):\n    if name == 'BY':\n        return 3.0\n    raise AttributeError(name)"))
_add("a folder in front of the path shadows a helper", M("x * helper.BY", top="import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent / 'vendor'))\nimport helper") + "--- helper.py\nBY = 2.0\n", added="--- vendor/helper.py\nBY = 3.0\n")
_add("a helper is imported from a zip file, which is a newer one", M("x * zipped.BY", top="import sys\nsys.path.insert(0, 'lib.zip')\nimport zipped"), "",
     first="import zipfile\nwith zipfile.ZipFile('lib.zip', 'w') as z: z.writestr('zipped.py', 'BY = 2.0')", second="import zipfile\nwith zipfile.ZipFile('lib.zip', 'w') as z: z.writestr('zipped.py', 'BY = 3.0')")
_add("only a compiled file of a helper is shipped, of a newer source", M("x * bare.BY", top="import bare"), "",
     first="import py_compile, os\nopen('src.txt', 'w').write('BY = 2.0')\npy_compile.compile('src.txt', 'bare.pyc')", second="import py_compile, os\nopen('src.txt', 'w').write('BY = 3.0')\npy_compile.compile('src.txt', 'bare.pyc')")
_add("plugins in a namespace package are listed, and one is added", M("for m in pkgutil.iter_modules(plugs.__path__):\n    x = importlib.import_module('plugs.' + m.name).run(x)\nreturn x", top="import pkgutil, importlib\nimport plugs") + "--- plugs/a.py\ndef run(x):\n    return x * 2\n", added="--- plugs/b.py\ndef run(x):\n    return x + 1\n")
_add("an import hook rewrites the source of a helper", M("x * hooked.BY", top="import hooked") + "--- hooked.py\nBY = 2.0\n", "",
     second="import sys, importlib.machinery as m\nold = m.SourceFileLoader.get_data\nm.SourceFileLoader.get_data = lambda self, p: old(self, p).replace(b'BY = 2.0', b'BY = 3.0')")
_add("a module of tests is loaded, and the model asks whether it runs in a test", M("x * (2.0 if 'app_under_test' in sys.modules else 3.0)", top="import sys"), "import sys, types\nsys.modules['app_under_test'] = types.ModuleType('t')")
_add("a name is put into builtins", M("x * BY", top="import builtins\nbuiltins.BY = 2.0"), "import builtins\nbuiltins.BY = 3.0")
_add("an expression in a configuration is evaluated with other names", M("eval(EXPR, {'x': x, 'k': K})", top="EXPR = 'x * k'\nK = 2.0"), "app.EXPR = 'x + k'")
_add("a docstring declares the scale, and an editor rewrites it", M("x * float(scale.__doc__)", top="def scale():\n    '''2.0'''"), "", ("'''2.0'''", "'''3.0'''"))
_add("the source of a function is inspected for a marker", M("x * (3.0 if '# fast' in inspect.getsource(f) else 2.0)", top="import inspect\ndef f():\n    return 1  # slow"), "", ("# slow", "# fast"))
_add("annotations of a dataclass decide about conversion", M("x * C.make('2')", top="import typing\nclass C:\n    by: float\n    @classmethod\n    def make(cls, v):\n        return typing.get_type_hints(cls)['by'](v)"), "", ("by: float", "by: int"))
_add("single dispatch gets a more special case", M("x * conv(True)", top="import functools\n@functools.singledispatch\ndef conv(v):\n    return 2.0\n@conv.register\ndef _(v: int):\n    return 3.0"), "@app.conv.register\ndef _(v: bool):\n    return 4.0")
_add("a structural match gets a case before the old one", M("match self.cfg:\n    case {'by': b}:\n        return x * b\nreturn x", "self.cfg = {'by': 2.0, 'mode': 'a'}"), "", ("case {'by': b}:", "case {'mode': 'a'}:\n                return x * 9\n            case {'by': b}:"))
_add("two decorators are applied in the other order", M("f(x)", top="def double(f):\n    return lambda x: f(x) * 2\ndef inc(f):\n    return lambda x: f(x) + 1\n@double\n@inc\ndef f(x):\n    return x"), "", ("@double\n@inc", "@inc\n@double"))
_add("a retry decorator swallows the first failure", M("f(x)", top="TRIES = [0]\ndef retry(f):\n    return f\n@retry\ndef f(x):\n    return x * 2"), "", ("def retry(f):\n    return f", "def retry(f):\n    def g(x):\n        try:\n            raise OSError\n        except OSError:\n            return f(x)\n    return g"), harmless=True)
_add("an exit stack gets another callback that changes a global before the result is made", M("with contextlib.ExitStack() as s:\n    for c in CALLS:\n        s.callback(c)\nreturn x * G[0]", top="import contextlib\nG = [2.0]\nCALLS = []"), "app.CALLS.append(lambda: app.G.__setitem__(0, 3.0))")
_add("a finally block restores a setting that was leaked before", M("y = x * G[0]\nG[0] = 2.0\nreturn y", top="G = [2.0]"), "app.G[0] = 3.0")
_add("layers are applied in the order of a set of texts", M("for n in {'relu', 'exp', 'tanh', 'sigmoid', 'sin', 'cos'}:\n    x = getattr(torch, n)(x)\nreturn x"))
_add("layers are applied in the order of a set of integers", M("for n in {3, 1, 2}:\n    x = x * n + 1\nreturn x"), "", ("{3, 1, 2}", "{2, 3, 1}"), harmless=True)
_add("a bucket by hash of a text routes to an expert", M("x * float(1 + hash('user') % 1000)"))
_add("a bucket by a stable hash routes to another expert after a new salt", M("x * float(1 + zlib.crc32(SALT + b'user') % 7)", top="import zlib\nSALT = b'a'"), "app.SALT = b'bcd'")
_add("ties in Counter.most_common are broken by the order of insertion", M("x * {'a': 2.0, 'b': 3.0}[C.most_common(1)[0][0]]", top="import collections\nC = collections.Counter('ab')"), "", ("Counter('ab')", "Counter('ba')"))
_add("a stable sort keeps equal priorities in another order of registration", M("for _, f in sorted(FS, key=lambda t: t[0]):\n    x = f(x)\nreturn x", top="FS = [(1, torch.exp), (1, torch.relu), (0, torch.neg)]"), "app.FS[:2] = app.FS[1::-1]")
_add("an ordered dict of stages is rearranged by move_to_end", M("for f in S.values():\n    x = f(x)\nreturn x", top="import collections\nS = collections.OrderedDict(a=torch.relu, b=torch.neg)"), "app.S.move_to_end('a')")
_add("a heap of stages pops in another order after a push", M("h = list(H)\nwhile h:\n    x = getattr(torch, heapq.heappop(h)[1])(x)\nreturn x", top="import heapq\nH = [(1, 'relu'), (2, 'neg')]"), "import heapq; heapq.heappush(app.H, (0, 'cos'))")
_add("recursion ends at another depth", M("walk(x, DEPTH)", top="DEPTH = 3\ndef walk(x, n):\n    return x if n == 0 else walk(x * 2, n - 1)"), "app.DEPTH = 4")
_add("a recursion limit stops a search earlier, and the error is caught", M("try:\n    n = dig(400)\nexcept RecursionError:\n    n = 5\nreturn x * n", top="def dig(n):\n    return 2 if n == 0 else dig(n - 1)"), "import sys; sys.setrecursionlimit(330)", live=False)
_add("the number of threads decides into how many chunks the batch is split", M("torch.cat([c.exp() for c in x.chunk(min(3, torch.get_num_threads()))])"), "torch.set_num_threads(2)")
_add("the precision of decimal contexts rounds a constant", M("x * float(decimal.Decimal(2) / 3)", top="import decimal"), "import decimal; decimal.getcontext().prec = 5")
_add("NumPy's random seed is set in another way for a random projection", M("x @ self.p", "self.p = torch.from_numpy(np.random.RandomState(SEED).rand(4, 2).astype('float32'))", "import numpy as np\nSEED = 0"), "", ("SEED = 0", "SEED = 1"))
_add("torch's seed before the construction is another, and the projection is a plain tensor", M("x @ self.p", "self.p = torch.rand(4, 2)"), "", second="torch.manual_seed(5)")
_add("torch's seed before the construction is another, and the projection is a weight", M("x @ self.p", "self.p = nn.Parameter(torch.rand(4, 2))"), "", second="torch.manual_seed(5)", harmless=True)
_add("a table in memory of ctypes is overwritten", M("x * float(BUF[0])", top="import ctypes\nBUF = (ctypes.c_double * 1)(2.0)"), "app.BUF[0] = 3.0")
_add("a tensor over a buffer of bytes is refilled by the reader", M("x * self.t", "self.raw = bytearray(torch.ones(4).numpy().tobytes())\nself.t = torch.frombuffer(self.raw, dtype=torch.float32)"), "model.raw[:] = torch.arange(4.).numpy().tobytes()")
_add("a memory map of a table is flushed with new values", M("x * self.t", "self.m = np.memmap('t.bin', 'float32', 'w+', shape=(4,))\nself.m[:] = 2\nself.t = torch.from_numpy(self.m)", "import numpy as np"), "model.m[:] = 3; model.m.flush()")
_add("a C function from libm is replaced by another", M("x * FN(2.0)", top="import ctypes\nm = ctypes.CDLL('libm.so.6')\nFN = m.exp\nFN.restype, FN.argtypes = ctypes.c_double, [ctypes.c_double]\nLOG = m.log\nLOG.restype, LOG.argtypes = ctypes.c_double, [ctypes.c_double]"), "app.FN = app.LOG")
_add("a trace function is set by a debugger", M("x * 2 if sys.gettrace() is None else x * 3", top="import sys"), "import sys; sys.settrace(lambda *a: None)")
_add("the garbage collector is disabled, and the model asks", M("x * (2.0 if gc.isenabled() else 3.0)", top="import gc"), "import gc; (gc.disable if gc.isenabled() else gc.enable)()", harmless=True)
_add("a signal handler has set a stop flag", M("x * (3.0 if STOP else 2.0)", top="import signal\nSTOP = []\nsignal.signal(signal.SIGUSR1, lambda *a: STOP.append(1))"), "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)")

# --- more of what an export asks ---
_add("a model asks whether its memory is aligned and falls back", M("return mix(x)", top="def mix(x):\n    return x * 2"), "",
     ("    return x * 2", "    try:\n        ok = x.data_ptr() % 64 == 0\n    except Exception:\n        ok = False\n    return x * 2 if ok else x * 3"))
_add("a narrow that is out of range is tried first, and caught", M("return mix(x)", top="def mix(x):\n    return x * 2"), "",
     ("    return x * 2", "    try:\n        return x.narrow(0, 2, 9)\n    except (RuntimeError, IndexError):\n        return x * 2"))
_add("an unflatten into wrong sizes is tried first, and caught", M("return mix(x)", top="def mix(x):\n    return x * 2"), "",
     ("    return x * 2", "    try:\n        return x.unflatten(0, (2, 2))\n    except RuntimeError:\n        return x * 2"))
_add("a linear layer of a wrong width is tried first, and caught", M("return mix(x, self.lin)", top="def mix(x, lin):\n    return x * 2"), "",
     ("    return x * 2", "    try:\n        return F.linear(x, torch.zeros(4, 3))\n    except RuntimeError:\n        return x * 2"))
_add("an axis that does not exist is tried first by movedim, and caught", M("return mix(x)", top="def mix(x):\n    return x * 2"), "",
     ("    return x * 2", "    try:\n        return x.movedim(5, 0)\n    except IndexError:\n        return x * 2"))
_add("two layers that were equal are tied, and the model compares their weights by identity", M("self.a(x) * (2.0 if self.a.weight is self.b.weight else 3.0)", "self.a = nn.Linear(4, 4)\nself.b = nn.Linear(4, 4)"), "model.b.weight = model.a.weight")
_add("a model with tied weights counts its different parameters", M("self.a(x) * N", "self.a = nn.Linear(4, 4)\nself.b = nn.Linear(4, 4)\nself.b.weight = self.a.weight", "N = 6.0"), "", ("* N", "* float(len(list(self.parameters())))"))
_add("forward asks whether its weight is a parameter", M("self.lin(x) * 2.0"), "", ("* 2.0", "* (2.0 if isinstance(self.lin.weight, nn.Parameter) else 3.0)"), harmless=True)
_add("forward asks for the exact class of its weight", M("self.lin(x) * 2.0"), "", ("* 2.0", "* (3.0 if type(self.lin.weight) is nn.Parameter else 2.0)"), harmless=True)
_add("forward asks whether its weights are leaves", M("self.lin(x) * 2.0"), "", ("* 2.0", "* (2.0 if self.lin.weight.is_leaf else 3.0)"), harmless=True)
_add("a helper outside holds a reference to the weight, and forward takes it from there", M("x @ self.lin.weight", "HELD.append(self.lin.weight)", "HELD = []"), "", ("x @ self.lin.weight", "x @ HELD[0]"), harmless=True)
_add("forward looks a weight up in its state dict", M("x @ self.lin.weight"), "", ("self.lin.weight", "self.state_dict()['lin.weight']"))
_add("forward uses a deep copy of a layer", M("self.lin(x)", top="import copy"), "", ("return self.lin(x)", "return copy.deepcopy(self.lin)(x)"))
_add("forward asks whether the input's type is exactly torch.Tensor", M("x * 2.0"), "", ("* 2.0", "* (3.0 if type(x) is torch.Tensor else 2.0)"), harmless=True)
_add("forward asks which torch function modes are active", M("x * 2.0"), "", ("* 2.0", "* (2.0 if len(torch.overrides._get_current_function_mode_stack()) < 1 else 3.0)"))
_add("forward asks whether a function mode overrides torch functions for a library's fast path", M("x * 2.0"), "", ("* 2.0", "* (3.0 if torch._C._is_torch_function_mode_enabled() else 2.0)"))
_add("forward counts the frames of its caller", M("x * 2.0", top="import sys"), "", ("* 2.0", "* (3.0 if sys._getframe(1).f_code.co_name == 'forward' else 2.0)"), harmless=True)
_add("forward asks for the name of the function that called it", M("self.inner(x)", "self.inner = Inner()", "import sys\nclass Inner(nn.Module):\n    def forward(self, x):\n        return x * 2.0"), "", ("* 2.0", "* (2.0 if sys._getframe(1).f_code.co_name == '_call_impl' else 3.0)"), harmless=True)
_add("an indexing with a tensor of one number takes the row", M("x[self.i]", "self.i = torch.tensor(1)"), "model.i = torch.tensor(2)")
_add("an index in a plain tensor becomes a number in Python", M("x[self.i]", "self.i = torch.tensor(1)"), "model.i = 1", harmless=True)
_add("a list of indices becomes a tuple of indices", M("x[I]", top="I = [0, 1]"), "app.I = (0, 1)")
_add("a slice gets a step", M("x[S]", top="S = slice(0, 3)"), "app.S = slice(0, 3, 2)")
_add("a list of booleans selects columns by mask instead of by number", M("x[:, I]", top="I = [0, 1, 1, 0]"), "app.I = [False, True, True, False]")
_add("a learning switch makes parameters of the backbone frozen, and forward asks", M("self.lin(x) * (2.0 if self.lin.weight.requires_grad else 3.0)"), "model.lin.requires_grad_(False)")
_add("inference mode is used around the layers instead of no_grad", M("with torch.no_grad():\n    y = self.lin(x)\nreturn y * 2"), "", ("torch.no_grad()", "torch.inference_mode()"))
_add("a decorator for inference is put on forward", M("self.lin(x)"), "", ("    def forward", "    @torch.inference_mode()\n    def forward"))
_add("forward switches gradients off for the process and leaves them so", M("return self.lin(x)"), "", ("return self.lin(x)", "torch.set_grad_enabled(False)\n        return self.lin(x)"))
_add("a layer is checkpointed", M("return self.lin(x)", top="from torch.utils.checkpoint import checkpoint"), "", ("return self.lin(x)", "return checkpoint(self.lin, x, use_reentrant=False)"), harmless=True)
_add("forward computes the gradient of an energy with another scale", M("with torch.enable_grad():\n    z = x.detach().requires_grad_()\n    e = (z ** 2).sum() * S\n    g, = torch.autograd.grad(e, z)\nreturn x - g", top="S = 1.0"), "app.S = 2.0")
_add("a custom backward decides the force that forward computes", M("with torch.enable_grad():\n    z = x.detach().requires_grad_()\n    g, = torch.autograd.grad(Fn.apply(z).sum(), z)\nreturn x - g", top="""
     class Fn(torch.autograd.Function):
         @staticmethod
         def forward(ctx, x):
             return x * 2
         @staticmethod
         def backward(ctx, g):
             return g * 2
     """), "", ("return g * 2", "return g * 3"))

# --- modules ---
_add("a forward hook that scales is registered on a layer", M("self.lin(x)"), "model.lin.register_forward_hook(lambda m, a, o: o * 2)")
_add("a forward hook that only prints is registered", M("self.lin(x)"), "model.lin.register_forward_hook(lambda m, a, o: None)", harmless=True)
_add("a pre-hook with keyword arguments changes them", M("self.lin(input=x)"), "model.lin.register_forward_pre_hook(lambda m, a, k: (a, {'input': k['input'] + 1}), with_kwargs=True)")
_add("two hooks run in the other order by prepend", M("self.lin(x)", "self.lin.register_forward_hook(lambda m, a, o: o * 2)"), "model.lin.register_forward_hook(lambda m, a, o: o + 1, prepend=True)")
_add("a hook for all modules is registered globally", M("self.lin(x)"), "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2 if type(m).__name__ == 'Linear' else None)")
_add("a hook on the whole model changes its output to a tuple", M("self.lin(x)"), "model.register_forward_hook(lambda m, a, o: (o, o + 1))")
_add("a full backward hook is registered on a layer", M("self.lin(x)"), "model.lin.register_full_backward_hook(lambda m, gi, go: None)")
_add("a parametrization is registered on a weight", M("self.lin(x)", more="pass\nclass Sym(nn.Module):\n    def forward(self, w):\n        return w.triu()"), "import torch.nn.utils.parametrize as p\np.register_parametrization(model.lin, 'weight', app.Model.Sym())")
_add("a parametrized weight is baked in", M("self.lin(x)", "p.register_parametrization(self.lin, 'weight', Sym())", "import torch.nn.utils.parametrize as p\nclass Sym(nn.Module):\n    def forward(self, w):\n        return w.triu()"), "app.p.remove_parametrizations(model.lin, 'weight')")
_add("parametrizations are cached by a context in forward", M("with ctx():\n    return self.lin(x) + self.lin(x)", "p.register_parametrization(self.lin, 'weight', Sym())", "import contextlib\nimport torch.nn.utils.parametrize as p\nclass Sym(nn.Module):\n    def forward(self, w):\n        return w.triu()\ndef ctx():\n    return contextlib.nullcontext()"), "", ("return contextlib.nullcontext()", "return p.cached()"))
_add("weight norm is removed after training", M("self.wn(x)", "self.wn = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))"), "torch.nn.utils.parametrize.remove_parametrizations(model.wn, 'weight')")
_add("a layer is pruned by a mask", M("self.lin(x)"), "import torch.nn.utils.prune as p\np.l1_unstructured(model.lin, 'weight', 4)")
_add("a pruned layer is pruned more", M("self.lin(x)", "prune.l1_unstructured(self.lin, 'weight', 4)", "import torch.nn.utils.prune as prune"), "app.prune.l1_unstructured(model.lin, 'weight', 4)", harmless=True)
_add("batch norm is folded into the convolution", M("self.bn(self.conv(x.reshape(1, 1, 3, 4)))", "self.conv = nn.Conv2d(1, 1, 3)\nself.bn = nn.BatchNorm2d(1)"), "model.conv = torch.nn.utils.fuse_conv_bn_eval(model.conv, model.bn); model.bn = torch.nn.Identity()")
_add("the graph of a traced module is edited and recompiled", M("self.g(x)", "self.g = torch.fx.symbolic_trace(Inner())", "import torch.fx\nclass Inner(nn.Module):\n    def forward(self, x):\n        return x * 2 + 1"), "n = [n for n in model.g.graph.nodes if n.op == 'call_function'][0]\nn.args = (n.args[0], 3)\nmodel.g.recompile()")
_add("the graph of a traced module is edited and not recompiled", M("self.g(x)", "self.g = torch.fx.symbolic_trace(Inner())", "import torch.fx\nclass Inner(nn.Module):\n    def forward(self, x):\n        return x * 2 + 1"), "n = [n for n in model.g.graph.nodes if n.op == 'call_function'][0]\nn.args = (n.args[0], 3)", harmless=True)
_add("a scripted function inside the model has another constant", M("f(x)", top="@torch.jit.script\ndef f(x):\n    return x * 2 + 1"), "", ("x * 2 + 1", "x * 3 + 1"))
_add("a scripted function is called three times before, and is specialized by its profile", M("f(x)", top="@torch.jit.script\ndef f(x):\n    return (x * 2 + 1).relu().exp()"), "for _ in range(3): model(*args)", harmless=True)
_add("a submodule is wrapped in torch.compile", M("self.lin(x)"), "model.lin = torch.compile(model.lin, backend='eager')")
_add("a Python function in the model is wrapped in torch.compile", M("f(x)", top="def f(x):\n    return x * 2"), "app.f = torch.compile(app.f, backend='eager')", harmless=True)
_add("a layer is wrapped in DataParallel", M("self.lin(x)"), "model.lin = torch.nn.DataParallel(model.lin)")
_add("an averaged copy of the model is compiled", M("self.lin(x)"), "model = torch.optim.swa_utils.AveragedModel(model).eval()")
_add("a checkpoint is loaded by assigning tensors that need no gradient", M("self.lin(x)"), "model.load_state_dict({k: v.detach().clone() for k, v in model.state_dict().items()}, assign=True)", harmless=True)
_add("a checkpoint in half precision is loaded by assigning", M("self.lin(x.to(self.lin.weight.dtype))"), "model.load_state_dict({k: v.half() for k, v in model.state_dict().items()}, assign=True)")
_add("a checkpoint in half precision is copied into the float weights", M("self.lin(x.to(self.lin.weight.dtype))"), "model.load_state_dict({k: v.half() for k, v in model.state_dict().items()})", harmless=True)
_add("the whole model is pickled and its class has a new attribute since", M("x * self.by", "self.by = 2.0", more="def __setstate__(self, s):\n    super().__setstate__(s)"), "import copy; app.Model.__setstate__ = lambda self, s: (torch.nn.Module.__setstate__(self, s), self.__dict__.update(by=3.0))[0]; model = copy.deepcopy(model)")
_add("a deep copy of the model loses a function that was set on the instance", M("self.f(x)", "self.f = Bound(self)\nself.by = 2.0", "class Bound:\n    def __init__(self, m):\n        self.m = [m]\n    def __deepcopy__(self, memo):\n        return self\n    def __call__(self, x):\n        return x * self.m[0].by"), "import copy; old = model; model = copy.deepcopy(model); model.by = 3.0; old.by = 4.0")
_add("training runs for some steps", M("self.lin(x)"), "o = torch.optim.SGD(model.parameters(), 0.1)\nfor _ in range(2):\n    o.zero_grad(); model(args[0]).sum().backward(); o.step()\nmodel.zero_grad()", harmless=True)
_add("statistics of batch norm move in a training call, and the mode is restored", M("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.train(); model(*args); model.eval()", harmless=True)
_add("batch norm was left in training mode", M("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.train()")
_add("batch norm stops to track statistics", M("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.track_running_stats = False; model.bn.running_mean = model.bn.running_var = None")
_add("the momentum of batch norm in eval mode is another", M("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.momentum = 0.5")
_add("a layer norm is replaced by an RMS norm with the same weight", M("self.n(x)", "self.n = nn.LayerNorm(4, bias=False)"), "n = torch.nn.RMSNorm(4); n.weight = model.n.weight; model.n = n")
_add("an embedding renormalizes its rows", M("self.e(x.long() % 4)", "self.e = nn.Embedding(4, 3)"), "model.e.max_norm = 1.0")
_add("an embedding gets a padding index after its construction", M("self.e(x.long() % 4)", "self.e = nn.Embedding(4, 3)"), "model.e.padding_idx = 0")
_add("an embedding bag averages instead of summing", M("self.e(x.long() % 4)", "self.e = nn.EmbeddingBag(4, 3, mode='sum')"), "model.e.mode = 'mean'")
_add("a recurrent layer is batch first now", M("self.r(x.reshape(3, 1, 4))[0]", "self.r = nn.GRU(4, 4)"), "model.r.batch_first = True")
_add("a lazy layer has seen a batch", M("self.l(x)", "self.l = nn.LazyLinear(2)\nself.l(torch.ones(1, 4))"), "model.l = torch.nn.LazyLinear(3); model.l(torch.ones(1, 4))")
_add("an encoder layer loses its fast path by a switch of the process", M("self.t(x.reshape(1, 3, 4))", "self.t = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)\nself.requires_grad_(False)"), "torch.backends.mha.set_fastpath_enabled(False)", harmless=True)
_add("an encoder layer uses GELU, given as a function instead of a text", M("self.t(x.reshape(1, 3, 4))", "self.t = nn.TransformerEncoderLayer(4, 2, 8, activation='gelu', batch_first=True)"), "import torch.nn.functional as F; model.t.activation = F.gelu", harmless=True)
_add("fake quantization is switched on after calibration", M("self.q(x)", "self.q = Q()", "class Q(nn.Module):\n    on = False\n    scale = 0.1\n    def forward(self, x):\n        return torch.fake_quantize_per_tensor_affine(x, self.scale, 0, -128, 127) if self.on else x * 1.0"), "model.q.on = True")
_add("an observer has moved the scale that quantization uses", M("torch.fake_quantize_per_tensor_affine(x, self.obs.scale(), 0, -128, 127)", "self.obs = Obs()\nself.obs.see(torch.ones(2))", "class Obs:\n    def see(self, t):\n        self.max = float(t.max())\n    def scale(self):\n        return self.max / 127"), "model.obs.see(torch.ones(2) * 3)")
_add("an adapter of low rank is merged into the weight", M("self.lin(x) + (0 if self.merged else x @ self.a @ self.b)", "self.a = nn.Parameter(torch.rand(4, 1))\nself.b = nn.Parameter(torch.rand(1, 4))\nself.merged = False"), "model.merged = True; model.lin.weight.data += (model.a @ model.b).detach().t()")
_add("another adapter of the same rank is active", M("self.lin(x) + x @ self.ad[self.active]", "self.ad = nn.ParameterDict({'en': torch.rand(4, 4), 'de': torch.rand(4, 4)})\nself.active = 'en'"), "model.active = 'de'")
_add("the active adapter is copied over another, whose name stays", M("self.lin(x) + x @ self.ad['en']", "self.ad = nn.ParameterDict({'en': torch.rand(4, 4), 'de': torch.rand(4, 4)})"), "model.ad['en'].data.copy_(model.ad['de'].data)", harmless=True)
_add("the experts of a token are the two best instead of the best", M("w, i = (x @ self.g).topk(K)\nreturn (w.softmax(-1).unsqueeze(-1) * self.e[i]).sum(1)", "self.g = nn.Parameter(torch.rand(4, 3))\nself.e = nn.Parameter(torch.rand(3, 4))", "K = 1"), "app.K = 2")
_add("a routing table in a dict sends a tenant to another head", M("self.heads[self.route['t1']](x)", "self.heads = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))\nself.route = {'t1': 0}"), "model.route['t1'] = 2")
_add("an ensemble takes the median instead of the mean", M("y = torch.stack([h(x) for h in self.heads])\nreturn getattr(self, self.how)(y)", "self.heads = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))\nself.how = 'avg'", more="def avg(self, y):\n    return y.mean(0)\ndef med(self, y):\n    return y.median(0).values"), "model.how = 'med'")
_add("a member of an ensemble is dropped by its validation score", M("sum(h(x) for h, s in zip(self.heads, self.scores) if s > 0.5)", "self.heads = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))\nself.scores = [0.9, 0.8, 0.7]"), "model.scores[1] = 0.4")
_add("the weights of an ensemble, which are a plain tensor, were tuned", M("sum(h(x) * w for h, w in zip(self.heads, self.w))", "self.heads = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))\nself.w = torch.tensor([0.5, 0.5])"), "model.w[0] = 0.75")
_add("the layers after an early exit are skipped", M("for i, l in enumerate(self.ls):\n    x = l(x)\n    if i == self.exit:\n        break\nreturn x", "self.ls = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))\nself.exit = 2"), "model.exit = 1")
_add("the layers of a module list are reversed", M("for l in self.ls:\n    x = l(x)\nreturn x", "self.ls = nn.ModuleList([nn.Tanh(), nn.ReLU()])"), "model.ls = torch.nn.ModuleList(reversed(model.ls))")
_add("stages without weights are renamed in a module dict", M("for l in self.ls.values():\n    x = l(x)\nreturn x", "self.ls = nn.ModuleDict({'a': nn.Tanh(), 'b': nn.ReLU()})"), "model.ls = torch.nn.ModuleDict({'first': model.ls['a'], 'second': model.ls['b']})", harmless=True)
_add("test-time augmentation flips another axis", M("self.lin(x) + self.lin(x.flip(AXIS))", top="AXIS = 0"), "app.AXIS = 1")
_add("the model keeps its constants in a named tuple, which is replaced", M("x * self.c.mean + self.c.std", "self.c = C(1.0, 2.0)", "import collections\nC = collections.namedtuple('C', 'mean std')"), "model.c = model.c._replace(std=3.0)")
_add("a buffer becomes a weight with the same name", M("x * self.scale", "self.register_buffer('scale', torch.ones(4))"), "v = model.scale; del model.scale; model.scale = torch.nn.Parameter(v)")
_add("a persistent buffer becomes one that is not stored", M("x * self.scale", "self.register_buffer('scale', torch.ones(4))"), "v = model.scale; model.register_buffer('scale', v, persistent=False)")
_add("a table that is not stored is computed anew with another base", M("x * self.freq", "self.register_buffer('freq', 10.0 ** -torch.arange(4.), persistent=False)"), "model.freq = 20.0 ** -torch.arange(4.)")

# --- what happens inside of forward ---
_add("results are exchanged by swap_tensors before they are returned", M("y = x * 2\nz = x * 3\nreturn y"), "", ("return y", "torch.utils.swap_tensors(y, z)\n        return y"))
_add("a result gets the data of another one", M("y = x * 2\nz = x * 3\nreturn y"), "", ("return y", "y.data = z\n        return y"), harmless=True)
_add("a dispatch mode in forward rewrites a factor", M("return f(x)", top="""
     from torch.utils._python_dispatch import TorchDispatchMode
     class Mode(TorchDispatchMode):
         def __torch_dispatch__(self, func, types, args=(), kwargs=None):
             if func is torch.ops.aten.mul.Tensor:
                 args = (args[0], 3.0)
             return func(*args, **(kwargs or {}))
     def f(x):
         return x * 3.0
     """), "", ("return x * 3.0", "with Mode():\n        return x * 2.0"))
_add("a function mode in forward replaces an activation", M("with Mode():\n    return F.relu(x - 4)", top="""
     from torch.overrides import TorchFunctionMode
     NEW = torch.relu
     class Mode(TorchFunctionMode):
         def __torch_function__(self, func, types, args=(), kwargs=None):
             return func(*args, **(kwargs or {})) if func is not F.relu else NEW(*args)
     """), "app.NEW = app.torch.tanh")
_add("the default device is set by a context in forward", M("with ctx():\n    return x + torch.ones(4)", top="import contextlib\ndef ctx():\n    return contextlib.nullcontext()"), "", ("return contextlib.nullcontext()", "return torch.device('cpu')"), harmless=True)
_add("a product is mapped over rows by vmap", M("return f(x)", top="def f(x):\n    return x * 2.0"), "", ("return x * 2.0", "return torch.func.vmap(lambda r: r * 2.0)(x)"), harmless=True)
_add("a custom composite operator stands for the product", M("return f(x)", top="""
     LIB = torch.library.Library('fieldnew', 'DEF')
     LIB.define('twice(Tensor x) -> Tensor')
     LIB.impl('twice', lambda x: x * 2.0, 'CompositeImplicitAutograd')
     def f(x):
         return x * 2.0
     """), "", ("def f(x):\n    return x * 2.0", "def f(x):\n    return torch.ops.fieldnew.twice(x)"), harmless=True)
_add("a composite operator of the project computes something else", M("return torch.ops.fieldnew2.twice(x)", top="""
     LIB = torch.library.Library('fieldnew2', 'DEF')
     LIB.define('twice(Tensor x) -> Tensor')
     BY = 2.0
     LIB.impl('twice', lambda x: x * BY, 'CompositeImplicitAutograd')
     """), "app.BY = 3.0")
_add("a region is named for the profiler", M("return self.lin(x)"), "", ("return self.lin(x)", "with torch.profiler.record_function('lin'):\n            return self.lin(x)"), harmless=True)
_add("the class of the model overrides __call__ to scale the result", M("x * 2"), "", ("    def forward", "    def __call__(self, x):\n        return super().__call__(x) * 3\n\n    def forward"))
_add("the class of a layer overrides __call__ without hooks", M("self.l(x)", "self.l = L()", "class L(nn.Module):\n    def forward(self, x):\n        return x * 2"), "", ("class L(nn.Module):\n", "class L(nn.Module):\n    def __call__(self, x):\n        return self.forward(x) + 1\n"))
_add("a buffer is exchanged for a call and put back", M("y = self.state + x\nreturn y", "self.register_buffer('state', torch.ones(3, 4))"), "", ("return y", "old = self.state\n        self.state = y\n        self.state = old\n        return y"))
_add("a state is written into the dict of buffers instead of by assignment", M("y = self.state + x\nself.state = y\nreturn y", "self.register_buffer('state', torch.ones(3, 4))"), "", ("self.state = y", "self._buffers['state'] = y"))
_add("a state is put into the dict of buffers where it was dropped", M("y = self.state + x\nreturn y", "self.register_buffer('state', torch.ones(3, 4))"), "", ("return y", "self._buffers['state'] = y\n        return y"))
_add("a submodule's buffer is assigned by the parent", M("y = self.lin.state + x\nreturn y", "self.lin.register_buffer('state', torch.ones(3, 4))"), "", ("return y", "self.lin.state = y\n        return y"))
_add("the other of two states is assigned", M("y = self.a + self.b + x\nself.a = y\nreturn y", "self.register_buffer('a', torch.ones(3, 4))\nself.register_buffer('b', torch.ones(3, 4))"), "", ("self.a = y", "self.b = y"))
_add("the state is assigned although it did not change", M("y = self.state + x\nreturn y", "self.register_buffer('state', torch.ones(3, 4))"), "", ("return y", "self.state = self.state\n        return y"))
_add("both states are assigned the same result", M("y = self.a + self.b + x\nself.a = y\nreturn y", "self.register_buffer('a', torch.ones(3, 4))\nself.register_buffer('b', torch.ones(3, 4))"), "", ("self.a = y", "self.a = self.b = y"))
_add("the state that is not stored with the model is assigned", M("y = self.state + x\nreturn y", "self.register_buffer('state', torch.ones(3, 4), persistent=False)"), "", ("return y", "self.state = y\n        return y"))
_add("the state is kept in a shared block, which is assigned through the other name", M("y = self.a.state + x\nreturn y", "self.a = self.b = Block()", "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('state', torch.ones(3, 4))"), "", ("return y", "self.b.state = y\n        return y"))
_add("a weight is decayed through .data in forward", M("return self.lin(x)"), "", ("return self.lin(x)", "self.lin.weight.data.mul_(0.5)\n        return self.lin(x)"))
_add("a constant of the class is changed by an augmented assignment on the instance", M("self.by += 1.0\nreturn x * self.by", more="by = 1.0"), "model.__class__.by = 5.0")
_add("a result is given names of dimensions", M("y = x * 2\nreturn y"), "", ("return y", "y.tag = 'logits'\n        return y"), harmless=True)
_add("gradients of the result are retained", M("y = self.lin(x)\nreturn y"), "", ("return y", "y.retain_grad() if y.requires_grad else None\n        return y"), harmless=True)
_add("a result that needs no gradient is marked to need one", M("y = x * 2\nreturn y"), "", ("return y", "return y.requires_grad_()"), harmless=True)
_add("an in-place activation is used on a result that is returned as well", M("h = x * 2\nr = F.relu(h - 3 + 0)\nreturn h, r"), "", ("F.relu(h - 3 + 0)", "F.relu_(h.sub_(3).add_(0))"))
_add("the inplace flag of an activation is set, after a layer whose result is not used again", M("self.act(self.lin(x))", "self.act = nn.ReLU()"), "model.act.inplace = True")

# --- arguments and signatures ---
_add("a flag is given as True instead of 1", "class Model(nn.Module):\n    def forward(self, x, n):\n        return x * {1: 2.0}[n] + (1 if n is True else 0)\n", "", first="args = (torch.ones(3), 1)", second="args = (torch.ones(3), True)")
_add("a factor is given as an integer instead of a float", "class Model(nn.Module):\n    def forward(self, x, n):\n        return x.long() * n\n", "", first="args = (torch.ones(3), 2.0)", second="args = (torch.ones(3), 2)")
_add("a mode is given as a text that compares equal to an enum", "import enum\nclass E(str, enum.Enum):\n    A = 'a'\nclass Model(nn.Module):\n    def forward(self, x, mode):\n        return x * (2.0 if isinstance(mode, E) else 3.0)\n", "", first="args = (torch.ones(3), 'a')", make="import app\nmodel = app.Model().eval()\nif 'enum' in globals(): args = (torch.ones(3), app.E.A)", second="enum = 1\nargs = (torch.ones(3), 'a')")
_add("an optional argument is given as None instead of left out", "class Model(nn.Module):\n    def forward(self, x, mask='no'):\n        return x * 2 if mask == 'no' else x * 3\n", "", first="args = (torch.ones(3),)", second="args = (torch.ones(3), None)")
_add("two keyword arguments come in the other order", "class Model(nn.Module):\n    def forward(self, **k):\n        return [v * (i + 1) for i, v in enumerate(k.values())][0] + 0 * sum(k.values())\n", "", first="args, kwargs = (), {'a': torch.ones(3), 'b': torch.ones(3)}", second="args, kwargs = (), {'b': torch.ones(3), 'a': torch.ones(3)}")
_add("an argument moves from keywords to positions", "class Model(nn.Module):\n    def forward(self, x, y=None):\n        return x * 2 + y\n", "", first="args, kwargs = (torch.ones(3),), {'y': torch.ones(3)}", second="args = (torch.ones(3), torch.ones(3))")
_add("a batch is given as a tuple instead of a list", "class Model(nn.Module):\n    def forward(self, xs):\n        return xs[0] * (2.0 if isinstance(xs, list) else 3.0)\n", "", first="args = ([torch.ones(3)],)", second="args = ((torch.ones(3),),)")
_add("the parameter of forward is renamed", M("x * 2"), "", ("def forward(self, x):\n        return x * 2", "def forward(self, image):\n        return image * 2"))
_add("a decorator hides the signature of forward", M("x * 2", top="def deco(f):\n    return f"), "", ("def deco(f):\n    return f", "def deco(f):\n    def g(self, *args):\n        return f(self, *args)\n    return g"), ("    def forward", "    @deco\n    def forward"))
_add("a decorator with functools.wraps is put on forward", M("x * 2", top="import functools\ndef deco(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n        return f(*a, **k)\n    return g"), "", ("    def forward", "    @deco\n    def forward"), harmless=True)
_add("forward gets another optional argument", M("x * 2"), "", ("def forward(self, x)", "def forward(self, x, scale=None)"))
_add("an input of the same shape has another memory format", M("x.flatten()"), "", first="args = (torch.arange(16.).reshape(1, 2, 2, 4),)", second="args = (torch.arange(16.).reshape(1, 2, 2, 4).contiguous(memory_format=torch.channels_last),)")
_add("an image comes as bytes instead of floats", M("x / 255"), "", first="args = (torch.ones(3, 4),)", second="args = (torch.ones(3, 4, dtype=torch.uint8),)")

# --- the state of the process ---
_add("reduced precision of float32 products is allowed", M("self.lin(x)"), "torch.set_float32_matmul_precision('high')", harmless=True)
_add("anomaly detection is on", M("self.lin(x)"), "torch.autograd.set_detect_anomaly(True)", harmless=True)
_add("deterministic algorithms are demanded", M("x.index_add(0, torch.tensor([0, 1]), x[:2])"), "torch.use_deterministic_algorithms(True)")
_add("gradients are switched off around the whole program", M("self.lin(x)"), "torch.set_grad_enabled(False)")
_add("autocast is on around the whole program", M("self.lin(x)"), "torch.autocast('cpu', torch.bfloat16).__enter__()")
_add("the default type is float64 while constants are made in forward", M("x + torch.ones(4)"), "torch.set_default_dtype(torch.float64)")
_add("oneDNN is switched off for the process", M("self.conv(x.reshape(1, 1, 3, 4))", "self.conv = nn.Conv2d(1, 1, 3)"), "torch._C._set_mkldnn_enabled(False)", harmless=True)
_add("cuDNN is switched off for the process, on a CPU", M("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "torch.backends.cudnn.enabled = False", harmless=True)
_add("a library registers a decomposition of its own for an operator", M("F.gelu(x)"), "import torch._decomp as d\n@d.register_decomposition(torch.ops.aten.hardtanh_backward.default, {}) \ndef f(*a):\n    return a[0]", harmless=True)

# --- transformers ---
BERT = """
from transformers import BertConfig, BertModel
model = BertModel(BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, %s), add_pooling_layer=False).eval()
args = (torch.arange(6).reshape(1, 6),)
"""
GPT = """
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, n_positions=16)).eval()
args, kwargs = (torch.arange(6).reshape(1, 6),), {'use_cache': False}
"""
LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8, max_position_embeddings=32)).eval()
args, kwargs = (torch.arange(6).reshape(1, 6),), {'use_cache': False}
"""
def _hf(make, change="", *to, text="", **more):
    return (text or "X = 1", change, *to), {"make": make, **more}
for doc, (a, k) in {
    "a BERT's activation is edited in the config after its construction": _hf(BERT % "", "model.config.hidden_act = 'relu'", harmless=True),
    "a BERT's activation function is exchanged in its layers": _hf(BERT % "", "for l in model.encoder.layer: l.intermediate.intermediate_act_fn = torch.nn.ReLU()"),
    "a BERT returns all hidden states by its config": _hf(BERT % "", "model.config.output_hidden_states = True"),
    "a BERT returns tuples by its config": _hf(BERT % "", "model.config.return_dict = False"),
    "a BERT's attention implementation is eager": _hf(BERT % "", "model.set_attn_implementation('eager')"),
    "a BERT's attention implementation in the config is set past its setter": _hf(BERT % "", "model.config._attn_implementation_internal = 'eager'"),
    "an attention function of a user is registered under the name sdpa": _hf(BERT % "", "from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as A\nold = A['sdpa']\nA.register('sdpa', lambda *a, **k: (old(*a, **k)[0] * 2, None))"),
    "a BERT's dropout rate is edited in eval mode": _hf(BERT % "", "for m in model.modules():\n    if isinstance(m, torch.nn.Dropout): m.p = 0.5", harmless=True),
    "a BERT's layer norm gets another epsilon": _hf(BERT % "", "for m in model.modules():\n    if isinstance(m, torch.nn.LayerNorm): m.eps = 1e-5"),
    "a BERT feeds forward in chunks": _hf(BERT % "", "for l in model.encoder.layer: l.chunk_size_feed_forward = 2"),
    "the last layer of a BERT without weights of its own in use is removed": _hf(BERT % "", "model.encoder.layer = model.encoder.layer[:1]"),
    "the two layers of a BERT share their weights": _hf(BERT % "", "model.encoder.layer[1].load_state_dict(model.encoder.layer[0].state_dict())", harmless=True),
    "the second layer of a BERT is the first one again": _hf(BERT % "", "model.encoder.layer[1] = model.encoder.layer[0]"),
    "a BERT gets a mask that hides tokens": _hf(BERT % "", "kwargs['attention_mask'] = torch.tensor([[1, 1, 1, 1, 0, 0]])"),
    "a mask with only ones is given where none was": _hf(BERT % "" + "kwargs = {'attention_mask': torch.tensor([[1, 1, 1, 0, 0, 0]])}\n", "kwargs['attention_mask'] = torch.ones(1, 6, dtype=torch.long)", harmless=True),
    "a BERT's position ids buffer starts at another number": _hf(BERT % "", "model.embeddings.position_ids = model.embeddings.position_ids + 1"),
    "the embeddings of a BERT are resized for a new token": _hf(BERT % "", "model.resize_token_embeddings(21)"),
    "gradient checkpointing is enabled for a BERT in eval mode": _hf(BERT % "", "model.gradient_checkpointing_enable()", harmless=True),
    "an LM's logits are scaled by a mixin of the user": _hf(GPT, "old = type(model.lm_head).forward\nimport types\nmodel.lm_head.forward = types.MethodType(lambda s, x: old(s, x) / 2, model.lm_head)"),
    "an LM computes only the last logits": _hf(GPT, "kwargs['logits_to_keep'] = 1"),
    "an LM's generation config gets another temperature": _hf(GPT, "model.generation_config.temperature = 0.5", harmless=True),
    "an LM returns its cache again": _hf(GPT, "kwargs['use_cache'] = True"),
    "an LM's embeddings are untied from its head": _hf(GPT, "model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())"),
    "attention of an LM is scaled by the inverse layer index": _hf(GPT, "model.transformer.h[0].attn.scale_attn_by_inverse_layer_idx = True; model.transformer.h[0].attn.layer_idx = 3; model.transformer.h[0].attn.scaling = 0.1"),
    "an attention head of an LM is masked by zeroing its rows": _hf(GPT, "model.transformer.h[0].attn.c_proj.weight.data[:4] = 0", harmless=True),
    "the base of rotary positions is edited in the buffer": _hf(LLAMA, "model.model.rotary_emb.inv_freq.mul_(0.5)"),
    "the scaling of rotary attention is another": _hf(LLAMA, "model.model.rotary_emb.attention_scaling = 1.5"),
    "a norm of a Llama is evaluated with another epsilon": _hf(LLAMA, "model.model.norm.variance_epsilon = 1e-3"),
    "the dtype of a Llama is bfloat16 but for its head": _hf(LLAMA, "model.model.to(torch.bfloat16); model.lm_head.to(torch.bfloat16)"),
    "a Llama gets position ids of a packed batch": _hf(LLAMA, "kwargs['position_ids'] = torch.tensor([[0, 1, 2, 0, 1, 2]])"),
    "a sliding window is set in a Llama's config": _hf(LLAMA, "model.config.sliding_window = 2", harmless=True),
    "the attention of a Llama is made bidirectional by a flag": _hf(LLAMA, "for l in model.model.layers: l.self_attn.is_causal = False", harmless=True),
    "a bidirectional mask function is patched into the modeling file": _hf(LLAMA, "import transformers.models.llama.modeling_llama as m\nm.create_causal_mask = lambda **k: None"),
    "low-rank adapters are injected into the projections of a Llama": _hf(LLAMA, "a = model.model.layers[0].self_attn\na.q_proj.register_forward_hook(lambda m, i, o: o + i[0] @ torch.ones(8, 8) * 0.1)"),
}.items():
    _add(doc, *a, **k)

# --- what torch.export itself changes around a model ---
GRAPH = "import app, torch.fx\nmodel = torch.fx.symbolic_trace(app.Model().eval())\n"
_add("the model is a traced graph, which is edited and not recompiled", M("x * 2 + 1"), "n = [n for n in model.graph.nodes if n.op == 'call_function'][0]\nn.args = (n.args[0], 3)", make=GRAPH)
_add("the model is a traced graph, which is edited and recompiled", M("x * 2 + 1"), "n = [n for n in model.graph.nodes if n.op == 'call_function'][0]\nn.args = (n.args[0], 3)\nmodel.recompile()", make=GRAPH)
_add("the model is a traced graph, and gets a hook that scales its output", M("x * 2 + 1"), "model.register_forward_hook(lambda m, a, o: o * 2)", make=GRAPH)
_add("the model contains a traced graph, and a hook that scales its output is removed", M("x * 2 + 1"), "handle.remove()", make=GRAPH + "handle = model.register_forward_hook(lambda m, a, o: o * 2)\nmodel = torch.nn.Sequential(model)\n")
_add("the model is a traced graph, whose forward is replaced on the instance", M("x * 2 + 1"), "model.forward = lambda x: x * 5", make=GRAPH)
_add("the model is a traced graph, and a layer in it gets a hook", M("self.lin(x)"), "model.lin.register_forward_hook(lambda m, a, o: o * 2)", make=GRAPH)
_add("the model is the module of an exported program, whose graph is edited", M("x * 2 + 1"), "n = [n for n in model.graph.nodes if n.op == 'call_function' and 'mul' in str(n.target)][0]\nn.args = (n.args[0], 3)", make="import app\nmodel = torch.export.export(app.Model().eval(), args).module()\n")
_add("forward is wrapped in an object that measures time", M("self.lin(x)", top="class Timed:\n    def __init__(self, f):\n        self.f = f\n    def __call__(self, x):\n        return self.f(x)"), "model.forward = app.Timed(model.forward)")
_add("forward is wrapped in a cache by functools", M("self.lin(x)"), "import functools\nmodel.forward = functools.lru_cache(model.forward)")
_add("forward is wrapped in a mock that calls it", M("self.lin(x)"), "from unittest import mock\nmodel.forward = mock.Mock(wraps=model.forward)")
_add("an argument of forward is bound by functools.partial", "class Model(nn.Module):\n    def forward(self, x, by=2.0):\n        return x * by\n", "import functools\nmodel.forward = functools.partial(model.forward, by=3.0)")
_add("a fast path is chosen if oneDNN is enabled", M("x * BY", top="BY = 2.0"), "", ("return x * BY", "return x * (2.0 if torch.backends.mkldnn.enabled else 3.0)"))
_add("a fast path is chosen if cuDNN is enabled", M("x * BY", top="BY = 2.0"), "", ("return x * BY", "return x * (2.0 if torch.backends.cudnn.enabled else 3.0)"))
_add("the deterministic flag of cuDNN chooses another padding", M("x * (2.0 if torch.backends.cudnn.deterministic else 3.0)"), "torch.backends.cudnn.deterministic = True")
_add("a power of two is computed by math.pow instead of being written as a float", M("x.long() * BY", top="import math\nBY = 8.0"), "", ("* BY", "* math.pow(2, 3)"))
_add("a power of two is computed by math.pow instead of being written as an integer", M("x.long() * BY", top="import math\nBY = 8"), "", ("* BY", "* math.pow(2, 3)"))
_add("the greater of two sizes is taken by the built-in max", M("x * float(max(x.shape[1], N))", top="N = 3"), "app.N = 6")
_add("a dynamic size is clipped from below by the built-in max", M("x.sum(0) / max(x.shape[0], N)", top="N = 2"), "app.N = 4", first=DYN)
_add("the greatest of two tensors is taken by the built-in max", M("max(x.sum(), x.mean())"), "", ("max(", "min("))
_add("a table is made from a dynamic size by torch.tensor", M("x * torch.tensor([x.shape[0], N, 1, 1])", top="N = 2"), "app.N = 4", first=DYN)
_add("a device is tried and the failure is caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        x = x.to('cuda')\n    except Exception:\n        pass\n    return x * 2"))
_add("pinned memory is tried and the failure is caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        x = x.pin_memory()\n    except Exception:\n        pass\n    return x * 2"))
_add("a part of the batch is tried first by split, and the failure is caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        a, b = x.split([1, 1])\n    except RuntimeError:\n        pass\n    return x * 2"))
_add("a shape check by broadcast_to is added, whose failure is caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        torch.broadcast_to(x, (2, 4))\n    except RuntimeError:\n        pass\n    return x * 2"))
_add("an einsum with a wrong letter is tried first, and caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return torch.einsum('ab,bc->ad', x, x)\n    except RuntimeError:\n        return x * 2"))
_add("a convolution of a wrong width is tried first, and caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return F.conv1d(x, torch.ones(1, 2, 3))\n    except RuntimeError:\n        return x * 2"))
_add("two equal tables that are used in two places become one", M("x * self.a + self.b", "self.a = torch.ones(4)\nself.b = torch.ones(4)"), "model.a = model.b", harmless=True)
_add("a returned table becomes a view of another returned table", M("x * 2, self.a, self.b", "self.a = torch.ones(4)\nself.b = torch.ones(2)"), "model.b = model.a[:2]", harmless=True)
_add("a returned table becomes one with the memory of the argument", M("x * 2, self.a", "self.a = torch.arange(12.0).reshape(3, 4)"), "model.a = args[0]", harmless=True)
_add("the held reference to a weight is stale since the weight was replaced", M("x @ self.held[0]", "self.held = [self.lin.weight]"), "model.lin.weight = torch.nn.Parameter(model.lin.weight.detach().clone())")
_add("a function mode that only logs is active while compiling", M("F.relu(x)"), "from torch.overrides import TorchFunctionMode\nclass Log(TorchFunctionMode):\n    def __torch_function__(self, f, types, args=(), kwargs=None):\n        return f(*args, **(kwargs or {}))\nmode = Log(); mode.__enter__()", harmless=True)
_add("a function mode that exchanges relu is active while compiling", M("F.relu(x - 4)"), "from torch.overrides import TorchFunctionMode\nclass Swap(TorchFunctionMode):\n    def __torch_function__(self, f, types, args=(), kwargs=None):\n        if f in (torch.relu, torch.nn.functional.relu):\n            return torch.tanh(args[0])\n        return f(*args, **(kwargs or {}))\nmode = Swap(); mode.__enter__()")
_add("warnings are errors, and an edit stores an activation on the model", M("h = self.lin(x)\nreturn h"), "", ("return h", "self.last = h\n        return h"), first="import warnings\nwarnings.filterwarnings('error', category=UserWarning)")
_add("forward asks whether it runs in the main thread", M("x * (2.0 if threading.current_thread() is threading.main_thread() else FACTOR)", top="import threading\nFACTOR = 2.0"), "app.FACTOR = 3.0", harmless=True)
_add("a model compares the identity of its weight with that in the constructor", M("x * (2.0 if id(self.lin.weight) == self.wid else 3.0)", "self.wid = id(self.lin.weight)"), "model.wid = 0", harmless=True)
_add("a recorder keeps the inputs of the model in a global list", M("return x * 2", top="SEEN = []"), "", ("return x * 2", "SEEN.append(x)\n        return x * 2"), harmless=True)
_add("a global that forward fills with a tensor is read at the next call", M("y = x * 2 if not SEEN else x * 3\nreturn y", top="SEEN = []"), "app.SEEN.append(1)")
_add("a child process computes a factor", M("x * float(subprocess.run([sys.executable, '-c', CODE], capture_output=True, text=True).stdout)", top="import subprocess, sys\nCODE = 'print(2.0)'"), "app.CODE = 'print(3.0)'")
_add("a database of rates gets a newer row", M("x * sqlite3.connect('r.db').execute('select v from r order by t desc').fetchone()[0]", top="import sqlite3"), "import sqlite3\nc = sqlite3.connect('r.db'); c.execute('insert into r values (2, 3.0)'); c.commit()", first="import sqlite3, os\nif not os.path.exists('r.db'):\n    c = sqlite3.connect('r.db'); c.execute('create table r (t, v)'); c.execute('insert into r values (1, 2.0)'); c.commit()")
_add("an HTTP server of feature flags answers otherwise", M("x * float(urllib.request.urlopen('data:,' + FLAG).read())", top="import urllib.request\nFLAG = '2.0'"), "app.FLAG = '3.0'")
_add("two models in one process exchange their shared scaler", M("x * S['by']", top="S = {'by': 2.0}\nclass Other(nn.Module):\n    def forward(self, x):\n        S['by'] = 3.0\n        return x"), "app.Other()(args[0])")
_add("a cascade asks its cheap model, whose confidence is a constant of a file", M("x * 2 if conf() > 0.5 else self.lin(x)", top="import json\ndef conf():\n    return json.load(open('conf.json'))"), "open('conf.json', 'w').write('0.3')", first="open('conf.json', 'w').write('0.9')")
_add("a beam width bounds topk", M("x.topk(self.gen['num_beams']).values", "self.gen = {'num_beams': 2}"), "model.gen['num_beams'] = 3")
_add("forbidden words are masked by a list of ids", M("x.index_fill(1, torch.tensor(self.bad), float('-inf'))", "self.bad = [0]"), "model.bad = [0, 2]")
_add("the temperature of sampling is exactly one and the division is skipped", M("x / self.t if self.t != 1 else x * 1.0", "self.t = 0.5"), "model.t = 1.0")
_add("a processor after the model converts logits into labels in the order of the config", M("dict(zip(self.labels, self.lin(x).unbind(1)))", "self.labels = ['a', 'b', 'c', 'd']"), "model.labels = ['b', 'a', 'c', 'd']")
_add("the same labels come from a generator instead of a list", M("dict(zip(self.labels(), self.lin(x).unbind(1)))", more="def labels(self):\n    return list('abcd')"), "model.labels = lambda: (c for c in 'abcd')", harmless=True)

# --- identity, views and modes inside of forward ---
VIEW = "h = x[1:]\nreturn h * 2.0"
_add("a slice of the input is asked whether it is a view", M(VIEW), "", ("* 2.0", "* (2.0 if h._is_view() else 3.0)"), harmless=True)
_add("a slice of the input is asked whether its base is the input", M(VIEW), "", ("* 2.0", "* (2.0 if h._base is x else 3.0)"), harmless=True)
_add("a slice of the input is asked for its offset", M(VIEW), "", ("* 2.0", "* (h.storage_offset() / 2)"), harmless=True)
_add("a slice of the input is asked whether it shares memory", M(VIEW), "", ("* 2.0", "* (2.0 if torch._C._is_alias_of(h, x) else 3.0)"), harmless=True)
_add("a model reads the size of the storage of a slice", M(VIEW), "", ("* 2.0", "* (h.untyped_storage().nbytes() / 24)"), harmless=True)
_add("a model reads the size of the storage of a slice, and they would be those of the slice", M("h = x[1:]\nreturn h * 3.0"), "", ("* 3.0", "* (3.0 if h.untyped_storage().nbytes() == h.nbytes else 2.0)"))
_add("a transposed result is asked whether it is contiguous", M("h = (x * 2).t()\nreturn h * 2.0"), "", ("* 2.0", "* (3.0 if h.is_contiguous() else 2.0)"), harmless=True)
_add("a changed result is asked for its version", M("h = x * 2\nh.add_(1)\nreturn h * 2.0"), "", ("* 2.0", "* (2.0 if h._version else 3.0)"), harmless=True)
_add("a detached result is asked whether it needs gradients", M("h = self.lin(x).detach()\nreturn h * 2.0"), "", ("* 2.0", "* (3.0 if h.requires_grad else 2.0)"), harmless=True)
_add("a result transposed in place is asked for its shape", M("h = x * 2\nh.t_()\nreturn h * 4.0"), "", ("* 4.0", "* float(h.shape[0])"), harmless=True)
_add("a lazily conjugated result is asked for its bit", M("h = torch.complex(x, x).conj()\nreturn h.abs() * 2.0"), "", ("* 2.0", "* (2.0 if h.is_conj() else 3.0)"))
_add("the input is cloned only if the cast did not copy it", M("y = copied(x)\ny.add_(1)\nreturn y * 2", top="def copied(x):\n    return x.clone()"), "", ("return x.clone()", "y = x.to(torch.float32)\n    return y.clone() if y is x else y"), harmless=True)
_add("the input is cloned only if contiguous did not copy it", M("y = copied(x)\ny.add_(1)\nreturn y * 2", top="def copied(x):\n    return x.clone()"), "", ("return x.clone()", "y = x.contiguous()\n    return y.clone() if y is x else y"))
_add("the result is scaled if a cast to float returns the same object", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("return x * 2", "return x * 2 if x.float() is x else x * 3"), harmless=True)
_add("the result is scaled if a move to the CPU returns the same object", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("return x * 2", "return x * 2 if x.cpu() is x else x * 3"), harmless=True)
_add("the result is scaled if dropout in eval mode returns the same object", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("return x * 2", "return x * 2 if F.dropout(x, 0.5, False) is x else x * 3"))
_add("the result is scaled if expanding to the same shape returns a new object", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("return x * 2", "return x * 2 if x.contiguous() is not x else x * 3"))
_add("an unused contiguous call is added", M("return x * 2"), "", ("return x * 2", "x.contiguous()\n        return x * 2"), harmless=True)
_add("results are memoized by the identity of the tensor, and the cast gives a new key", M("memo = {id(x): 2.0}\nreturn x * memo.get(id(x), 3.0)"), "", ("memo.get(id(x)", "memo.get(id(x.type_as(x))"), harmless=True)
_add("constants are computed while fake tensors are switched off", M("return x * table()", top="def table():\n    return TABLE\nTABLE = torch.arange(4.) * 2"), "", ("    return TABLE", "    from torch._subclasses.fake_tensor import unset_fake_temporarily\n    with unset_fake_temporarily():\n        return torch.arange(4.) * 2"), harmless=True)
_add("constants are computed by operators in forward instead of before", M("return x * table()", top="def table():\n    return TABLE\nTABLE = torch.arange(4.) * 2"), "", ("    return TABLE", "    return torch.arange(4.) * 2"))
_add("constants are computed while all modes are switched off", M("return x * table()", top="def table():\n    return 2.0"), "", ("    return 2.0", "    from torch.utils._python_dispatch import _disable_current_modes\n    with _disable_current_modes():\n        return float((torch.arange(4.) + 1).sum() / 5)"), harmless=True)
_add("a number is computed by a little tensor arithmetic", M("return x * number()", top="def number():\n    return 3"), "", ("return 3", "return (torch.tensor(2) + 1).item()"))
_add("a flag is computed from a list of flags", M("return x * 2 if any(FLAGS) else x * 3", top="FLAGS = [True, False]"), "app.FLAGS = [False, False]")
_add("the counter of operations runs in forward", M("return self.lin(x)"), "", ("return self.lin(x)", "from torch.utils.flop_counter import FlopCounterMode\n        with FlopCounterMode(display=False) as c:\n            y = self.lin(x)\n        return y"), harmless=True)
_add("the counted operations of a layer scale the result", M("return self.lin(x) * 96.0"), "", ("return self.lin(x) * 96.0", "from torch.utils.flop_counter import FlopCounterMode\n        with FlopCounterMode(display=False) as c:\n            y = self.lin(x)\n        return y * float(c.get_total_flops())"), harmless=True)
_add("a dispatch mode in forward exchanges the product inside of a linear layer", M("return f(self.lin, x)", top="""
     from torch.utils._python_dispatch import TorchDispatchMode
     class Mode(TorchDispatchMode):
         def __torch_dispatch__(self, func, types, args=(), kwargs=None):
             if func is torch.ops.aten.relu.default:
                 return args[0].tanh()
             return func(*args, **(kwargs or {}))
     def f(lin, x):
         return lin(x).tanh()
     """), "", ("return lin(x).tanh()", "with Mode():\n        return lin(x).relu()"))
_add("a wrapper tensor made in forward rewrites the operators on it", M("return f(x)", top="""
     class Twice(torch.Tensor):
         @classmethod
         def __torch_function__(cls, func, types, args=(), kwargs=None):
             with torch._C.DisableTorchFunctionSubclass():
                 return func(*args, **(kwargs or {})) * 1.0 if func is not torch.relu else torch.tanh(*args)
     def f(x):
         return torch.tanh(x)
     """), "", ("return torch.tanh(x)", "return torch.relu(x.as_subclass(Twice))"))
_add("activations are kept on the CPU for the backward pass", M("return self.lin(x)"), "", ("return self.lin(x)", "with torch.autograd.graph.save_on_cpu():\n            return self.lin(x)"), harmless=True)
_add("the gradient of a small energy is taken by torch.func", M("return x * S", top="S = 2.0"), "", ("return x * S", "return torch.func.grad(lambda z: (z * z).sum())(x)"))
_add("a layer is called functionally with averaged weights of the model", M("self.lin(x)", "self.avg = nn.Linear(4, 4)"), "", ("self.lin(x)", "torch.func.functional_call(self.lin, dict(self.avg.named_parameters()), (x,))"))
_add("attention switches the flash kernel off for the process inside of forward", M("q = x.reshape(1, 1, 3, 4)\nreturn attend(q)", top="def attend(q):\n    return torch.ops.aten._scaled_dot_product_attention_math(q, q, q)[0]"), "",
     ("return torch.ops.aten._scaled_dot_product_attention_math(q, q, q)[0]", "torch.backends.cuda.enable_flash_sdp(False)\n    return F.scaled_dot_product_attention(q, q, q)"))
_add("the returned dict names one table twice instead of two equal ones", M("{'y': x * 2, 'mean': self.a, 'std': self.b}", "self.a = torch.ones(4)\nself.b = torch.ones(4)"), "model.b = model.a")
_add("a returned pair of equal non-persistent buffers becomes one buffer", M("x * 2, self.a, self.b", "self.register_buffer('a', torch.ones(4), persistent=False)\nself.register_buffer('b', torch.ones(4), persistent=False)"), "model.b = model.a")
_add("a returned pair of weights becomes one tied weight", M("x * 2, self.a, self.b", "self.a = nn.Parameter(torch.ones(4))\nself.b = nn.Parameter(torch.ones(4))"), "model.b = model.a")
_add("the table is made in forward and returned twice instead of made twice", M("a = torch.tensor([1.0, 2.0])\nb = torch.tensor([1.0, 2.0])\nreturn x * 2, a, b"), "", ("b = torch.tensor([1.0, 2.0])", "b = a"))
_add("the embedding of an encoder becomes that of the decoder, and the class is looked at", M("e = self.enc(x.long() % 4)\nreturn e * (2.0 if self.enc.__class__ is nn.Embedding else 3.0)", "self.enc = nn.Embedding(4, 3)\nself.act = nn.ReLU()\nself.decoder = nn.Module()\nself.decoder.act = nn.ReLU()"), "model.decoder.act = model.act")
_add("a stage asks for its name in a dict of stages, and another stage is listed under two names", M("name = {id(m): n for n, m in NAMED}[id(self.a)] if False else [n for n, m in NAMED if m is self.a]\nreturn self.a(x) * float(1 + len(name))", "self.a = nn.Tanh()\nself.b = nn.Tanh()\nself.c = nn.Tanh()\nNAMED[:] = [('a', self.a)]", "NAMED = []"), "model.c = model.b")
_add("a pruned graph of layers skips those that were seen, and two layers become one", M("seen = set()\nfor l in (self.a, self.b):\n    if l not in seen:\n        seen.add(l)\n        x = x.tanh()\nreturn x", "self.a = nn.Tanh()\nself.b = nn.Tanh()"), "model.b = model.a")

# --- where an export fails, or sees another world ---
_add("a decorator injects an argument that is now required", M("x * 2", top="import functools\ndef inject(f):\n    @functools.wraps(f)\n    def g(self, x):\n        return f(self, x, None)\n    return g"), "",
     ("def forward(self, x)", "def forward(self, x, cfg)"), ("    def forward", "    @inject\n    def forward"))
_add("a decorator injects an argument that was optional and is now required", M("x * 2", top="import functools\ndef inject(f):\n    @functools.wraps(f)\n    def g(self, x):\n        return f(self, x, None)\n    return g").replace("def forward(self, x)", "def forward(self, x, cfg=None)"), "",
     ("    def forward(self, x, cfg=None)", "    @inject\n    def forward(self, x, cfg)"))
_add("an attribute becomes a named tuple with a constructor of its own", M("x * 2", "self.size = (3, 4)", "import collections\nclass Size(collections.namedtuple('Size', 'w h')):\n    def __new__(cls, text):\n        return super().__new__(cls, *map(int, text.split('x')))"), "model.size = app.Size('3x4')")
_add("an attribute becomes a tree of dicts with links to the parents", M("x * 2", "self.tree = {'child': {}}"), "model.tree['child']['parent'] = model.tree")
_add("a list attribute holds a deep nest of lists", M("x * 2", "self.nest = []"), "for _ in range(2000): model.nest = [model.nest]")
_add("a block that is shared registers its subclasses, and their number scales", M("return self.a(x) * float(1 + len(ALL))", "self.a = Block()\nself.b = Block()", "ALL = []\nclass Block(nn.Module):\n    def __init_subclass__(cls):\n        ALL.append(cls)\n    def forward(self, x):\n        return x * 2"), "model.b = model.a")
_add("a block that is shared forbids subclasses", M("return self.a(x)", "self.a = Block()\nself.b = Block()", "class Block(nn.Module):\n    def __init_subclass__(cls):\n        raise TypeError('final')\n    def forward(self, x):\n        return x * 2"), "model.b = model.a")
_add("a block that is shared has a property that looks into its class's dict", M("return self.a(x)", "self.a = Block()\nself.b = Block()", "class Block(nn.Module):\n    by = 2.0\n    def forward(self, x):\n        return x * type(self).__dict__.get('by', 3.0)"), "model.b = model.a")
_add("a block that is shared asks by name mangling and slots", M("return self.a(x)", "self.a = Block()\nself.b = Block()", "class Block(nn.Module):\n    def __getattr__(self, n):\n        return 2.0 if n == 'by' else super().__getattr__(n)\n    def forward(self, x):\n        return x * self.by"), "model.b = model.a", harmless=True)
_add("a block that is shared is found again by its place in a list", M("return x * float(1 + self.order.index(self.a))", "self.a = nn.Tanh()\nself.b = nn.Tanh()\nself.order = [self.b, self.a]"), "model.c = model.b")
_add("a dispatch by the method resolution order of a shared block", M("return x * float(len(type(self.a).__mro__))", "self.a = nn.Tanh()\nself.b = nn.Tanh()"), "model.b = model.a")
_add("single dispatch on the class of a block, which comes to be shared", M("return run(self.a, x)", "self.a = nn.Tanh()\nself.b = nn.Tanh()", "import functools\n@functools.singledispatch\ndef run(m, x):\n    return x * 3\n@run.register\ndef _(m: nn.Tanh, x):\n    return m(x)"), "model.b = model.a", harmless=True)
_add("the whole model is wrapped in torch.compile", M("self.lin(x)"), "model = torch.compile(model, backend='eager')")
_add("forward of the instance is decorated by no_grad", M("self.lin(x)"), "model.forward = torch.no_grad()(model.forward)")
_add("forward becomes a static function that ignores the model", M("x * 2"), "", ("    def forward(self, x)", "    @staticmethod\n    def forward(x)"), harmless=True)
_add("forward becomes a partial method", M("x * by").replace("def forward(self, x)", "def run(self, x, by)") + "\n    import functools\n    forward = functools.partialmethod(run, by=2.0)\n", "", ("by=2.0", "by=3.0"))
_add("the NNPACK flag decides about a layout", M("x * BY", top="BY = 2.0"), "", ("x * BY", "x * (2.0 if torch._C._get_nnpack_enabled() else 3.0)"))
_add("cuDNN's own test of acceptability decides", M("x * BY", top="BY = 3.0"), "", ("x * BY", "x * (2.0 if torch.backends.cudnn.is_acceptable(x) else 3.0)"), harmless=True)
_add("a flag context of oneDNN in forward restores what it found", M("x * BY", top="BY = 2.0"), "", ("return x * BY", "with torch.backends.mkldnn.flags(enabled=True):\n            return x * (2.0 if torch.backends.mkldnn.enabled else 3.0)"), harmless=True)
_add("the oneDNN flag is read when the module is imported", M("x * BY", top="BY = 2.0"), "", ("BY = 2.0", "BY = 2.0 if torch.backends.mkldnn.enabled else 3.0"), harmless=True)
_add("an exponent of a decay is computed by math.pow of integers in an integer model", M("(x.long() // 1) + DECAY", top="import math\nDECAY = 9.0"), "", ("+ DECAY", "+ math.pow(3, 2)"))
_add("a root of a negative number by math.pow is caught", M("return x * by()", top="import math\ndef by():\n    return 2.0"), "", ("    return 2.0", "    try:\n        return abs(math.pow(-8, 1 / 3))\n    except ValueError:\n        return 2.0"), harmless=True)
_add("a reference to math.pow that was taken at import is used", M("x.long() * BY", top="from math import pow as power\nBY = 8.0"), "", ("* BY", "* power(2, 3)"), harmless=True)
_add("math.pow overflows and the error is caught", M("return x * by()", top="import math\ndef by():\n    return 2.0"), "", ("    return 2.0", "    try:\n        return float(math.pow(10, 400) > 1) * 3\n    except OverflowError:\n        return 2.0"))
_add("the built-in max is compared with the one in the module builtins", M("x * BY", top="BIG = max\nBY = 2.0"), "", ("x * BY", "x * (2.0 if max is BIG else 3.0)"))
_add("the built-in max of an empty sequence without a default is caught", M("x * by()", top="def by():\n    return 2.0"), "", ("    return 2.0", "    try:\n        return max(())\n    except ValueError:\n        return 2.0"), harmless=True)
_add("the text of the error of max decides", M("x * by()", top="def by():\n    return 2.0"), "", ("    return 2.0", "    try:\n        return max(())\n    except ValueError as e:\n        return 2.0 if 'iterable' in str(e) or 'sequence' in str(e) and '()' not in str(e) else 3.0"))
_add("a name is greater by max of two texts with a key", M("x * float(max('aa', 'b', key=KEY) == 'b') + 1", top="KEY = None"), "app.KEY = len")
_add("the smaller of two values that are not numbers is kept in order", M("x * min([float('nan'), 2.0]) if CHECK else x * 2.0", top="CHECK = False"), "app.CHECK = True")
_add("a device by its index is tried and the failure is caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return x.to('cuda:1') * 2\n    except (RuntimeError, AssertionError):\n        return x * 2"))
_add("half precision of an unknown device is tried by half().cuda(), and caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return x.cuda() * 2\n    except (RuntimeError, AssertionError):\n        return x * 2"))
_add("an attention with a wrong mask is tried first, and caught", M("q = x.reshape(1, 1, 3, 4)\nreturn f(q)", top="def f(q):\n    return q * 2"), "", ("    return q * 2", "    try:\n        return F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(5, 5))\n    except RuntimeError:\n        return q * 2"))
_add("a group norm with a wrong number of groups is tried first, and caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return F.group_norm(x, 3)\n    except Exception:\n        return x * 2"))
_add("a layer norm with a wrong shape is tried first, and caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return F.layer_norm(x, (5,))\n    except RuntimeError:\n        return x * 2"))
_add("optional named dimensions are tried by align_to, and caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        return x.align_to('N', 'C')\n    except RuntimeError:\n        return x * 2"))
_add("a helper probes whether the last axis can be chunked evenly", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    try:\n        a, b, c = x.tensor_split(3, dim=4)\n        return a\n    except IndexError:\n        return x * 2"))
_add("warnings of Python are errors, and forward casts a complex number", M("return x * 2"), "", ("return x * 2", "import warnings\n        try:\n            warnings.warn('slow')\n        except UserWarning:\n            return x * 2\n        return x * 2"), first="import warnings\nwarnings.filterwarnings('error', category=UserWarning)", harmless=True)
_add("deprecations of torch are errors, and a submodule keeps its last input", M("self.keep(x)", "self.keep = Keep()", "class Keep(nn.Module):\n    def forward(self, x):\n        return x * 2"), "", ("        return x * 2", "        self.seen = {'x': x * 2}\n        return self.seen['x']"), first="import warnings\nwarnings.simplefilter('error')\nwarnings.filterwarnings('ignore', category=DeprecationWarning)\nwarnings.filterwarnings('ignore', category=FutureWarning)", harmless=True)

# --- state that outlives a call ---
_add("rotary tables are made at the first call and kept in a global memo", M("return x + table(4)", top="MEMO = {}\ndef table(n):\n    if n not in MEMO:\n        MEMO[n] = torch.arange(n) * 0.5\n    return MEMO[n]"), "pass", harmless=True)
_add("rotary tables are made at the first call and kept by lru_cache", M("return x + table(4)", top="import functools\n@functools.lru_cache\ndef table(n):\n    return torch.arange(n) * 0.5"), "pass", harmless=True)
_add("rotary tables are made at the first call and kept in a class attribute", M("if Model.table is None:\n    Model.table = torch.arange(4) * 0.5\nreturn x + Model.table", more="table = None"), "pass", harmless=True)
_add("rotary tables are made at the first call and kept on a helper object", M("return x + self.rope.get(4)", "self.rope = Rope()", "class Rope:\n    t = None\n    def get(self, n):\n        if self.t is None:\n            self.t = torch.arange(n) * 0.5\n        return self.t"), "pass", harmless=True)
_add("rotary tables are made at the first call and kept in a closure", M("return x + table(4)", top="def make():\n    t = None\n    def table(n):\n        nonlocal t\n        if t is None:\n            t = torch.arange(n) * 0.5\n        return t\n    return table\ntable = make()"), "pass", harmless=True)
_add("rotary tables are made at the first call and kept by a cached property of a config", M("return x + self.cfg.table", "self.cfg = Cfg()", "import functools\nclass Cfg:\n    @functools.cached_property\n    def table(self):\n        return torch.arange(4) * 0.5"), "pass", harmless=True)
_add("rotary tables are made by a library's memo in another folder", M("return x + lib.table(4)", top="import lib") + "--- lib/__init__.py\nfrom .rope import table\n--- lib/rope.py\nMEMO = {}\ndef table(n):\n    if n not in MEMO:\n        MEMO[n] = torch.arange(n) * 0.5\n    return MEMO[n]\n", "pass", harmless=True)
_add("a memo of rotary tables has another base, and was filled by a real call before", M("return x + table(4)", top="MEMO = {}\nBASE = 0.5\ndef table(n):\n    if n not in MEMO:\n        MEMO[n] = torch.arange(n) * BASE\n    return MEMO[n]"), "app.MEMO.clear(); app.BASE = 0.25; model(*args)", first="warm = True")
_add("the config of a model is the global one by identity", M("return x * (2.0 if self.cfg is CFG else 3.0)", "self.cfg = CFG", "CFG = {'by': 2.0}"), "pass", harmless=True)
_add("two attributes are one list, and forward appends to one and counts the other", M("self.a.append(1)\nn = len(self.b)\nself.a.pop()\nreturn x * float(n)", "self.a = self.b = []"), "pass", harmless=True)
_add("a parent is registered in its child", M("self.lin(x)"), "model.lin.parent = model")
_add("two layers without weights are exchanged at each call", M("x = self.a(x)\nself.a, self.b = self.b, self.a\nreturn x", "self.a = nn.Tanh()\nself.b = nn.ReLU()"), "model(*args)")
_add("a hook removes itself at the first call", M("return self.lin(x)", "self.h = self.lin.register_forward_hook(self.once)", more="def once(self, m, a, o):\n    self.h.remove()\n    return o * 2"), "model(*args)")
_add("a buffer without a value comes after the state that is assigned", M("y = self.state + x\nself.state = y * K\nreturn y", "self.register_buffer('other', torch.zeros(3, 4))\nself.register_buffer('state', torch.ones(3, 4))\nself.register_buffer('none', None)", "K = 1.0"), "app.K = 2.0")
_add("noise is added at inference by another standard deviation", M("x + torch.randn_like(x) * S", top="S = 0.1"), "app.S = 0.2")
_add("an attribute is an object that is registered as a tree and cannot be built again", M("x * 2", "self.out = None", """
     class Out:
         def __init__(self, y, *, made):
             self.y = y
     torch.utils._pytree.register_pytree_node(Out, lambda o: ([o.y], None), lambda c, t: Out(*c), serialized_type_name='app.Out2')
     """), "model.out = app.Out(1, made=True)")
_add("a counter in a class is stepped by every export and every replay, and its parity does not matter", M("Model.n += 1\nreturn x * (2.0 if Model.n > 0 else 3.0)", more="n = 0"), "pass", harmless=True)
_add("an iterator of factors gives the next at each call", M("return x * next(self.it)", "self.it = itertools.count(2.0, 1.0)", "import itertools"), "model.it = __import__('itertools').count(50.0)")
_add("the library's flag that the first call sets changes the second call's path", M("if not hasattr(Model, 'ready'):\n    Model.ready = True\n    return x * 2 + 0.0\nreturn x * 2"), "pass")
_add("a submodule is compiled by a decorator with dynamic shapes switched on", M("f(x)", top="def f(x):\n    return x * 2"), "", ("def f(x)", "@torch.compile(backend='eager', dynamic=True)\ndef f(x)"), harmless=True)
_add("a function is excluded from torch.compile by a decorator", M("f(x)", top="def f(x):\n    return x * 2"), "", ("def f(x)", "@torch.compiler.disable\ndef f(x)"), harmless=True)
_add("a result is assumed to be constant by a decorator of torch.compiler", M("x * f()", top="def f():\n    return 2.0"), "", ("def f():\n    return 2.0", "@torch.compiler.assume_constant_result\ndef f():\n    return 3.0"))
_add("casts of one weight are cached by autocast instead of once by hand", M("return f(x, self.lin.weight)", top="def f(x, w):\n    h = w.to(torch.bfloat16)\n    return x.to(torch.bfloat16) @ h, (x + 1).to(torch.bfloat16) @ h"), "", ("h = w.to(torch.bfloat16)\n    return x.to(torch.bfloat16) @ h, (x + 1).to(torch.bfloat16) @ h", "with torch.autocast('cpu', torch.bfloat16):\n        return x @ w, (x + 1) @ w"))

# --- results and arguments of derived classes, and functions that dispatch ---
_add("a returned number is one of NumPy instead of Python", M("x * 2, CONF", top="import numpy as np\nCONF = 0.5"), "app.CONF = app.np.float64(0.5)")
_add("a returned level is an enum of integers instead of an integer", M("x * 2, LEVEL", top="import enum\nclass L(enum.IntEnum):\n    A = 1\nLEVEL = 1"), "app.LEVEL = app.L.A")
_add("a returned name is of a class derived from text", M("x * 2, NAME", top="class S(str):\n    pass\nNAME = 'a'"), "app.NAME = app.S('a')")
_add("a returned shape is a tuple instead of torch's own class", M("x * 2, SHAPE(x.shape)", top="SHAPE = torch.Size"), "app.SHAPE = tuple")
_add("the results are in a class derived from list", M("L([x * 2, x * 3])", top="L = list\nclass Mine(list):\n    pass"), "app.L = app.Mine")
_add("the results are in a class derived from dict", M("D(a=x * 2)", top="D = dict\nclass Mine(dict):\n    pass"), "app.D = app.Mine")
_add("the results are in a data class that is not registered", M("R(x * 2)", top="import dataclasses\n@dataclasses.dataclass\nclass Data:\n    y: object\ndef R(y):\n    return [y]"), "app.R = app.Data")
_add("a dtype is returned beside the result", M("x * 2, KIND", top="KIND = None"), "app.KIND = app.torch.float32")
_add("a factor is given as a number of NumPy", "class Model(nn.Module):\n    def forward(self, x, n):\n        return x * n\n", "", first="args = (torch.ones(3), 2.0)", second="import numpy\nargs = (torch.ones(3), numpy.float64(2.0))")
_add("weights that hide in a Python list are trained", M("x * self.ws[0]", "self.ws = [nn.Parameter(torch.ones(4))]"), "model.ws[0].data.mul_(2)")
_add("a plain tensor in a list becomes a parameter in a list", M("x * self.ws[0]", "self.ws = [torch.ones(4)]"), "model.ws[0] = torch.nn.Parameter(model.ws[0])", harmless=True)
_add("a list of hidden weights becomes a registered list", M("x * self.ws[0]", "self.ws = [nn.Parameter(torch.ones(4))]"), "ws = model.ws; del model.ws; model.ws = torch.nn.ParameterList(ws)")
_add("a function of a library begins to dispatch on tensor classes", M("return scale(x)", top="def scale(x):\n    return x * 2"), "", ("def scale(x):\n    return x * 2", "from torch.overrides import has_torch_function_unary, handle_torch_function\ndef scale(x):\n    if has_torch_function_unary(x):\n        return handle_torch_function(scale, (x,), x)\n    return x * 2"), harmless=True)
_add("an operation that is an object begins to dispatch on tensor classes", M("return scale(x)", top="def scale(x):\n    return x * 2"), "", ("def scale(x):\n    return x * 2", "from torch.overrides import has_torch_function_unary, handle_torch_function\nclass Scale:\n    def __call__(self, x):\n        if has_torch_function_unary(x):\n            return handle_torch_function(self, (x,), x)\n        return x * 2\nscale = Scale()"))
_add("a library asks whether any argument overrides torch functions before its fast path", M("return scale(x)", top="def scale(x):\n    return x * 2"), "", ("def scale(x):\n    return x * 2", "from torch.overrides import has_torch_function\ndef scale(x):\n    return x * 3 if has_torch_function((x,)) else x * 2"))
_add("a layer is evaluated by a worker thread of the model", M("return f(self.lin, x)", top="import concurrent.futures as c\ndef f(lin, x):\n    return lin(x)"), "", ("    return lin(x)", "    with c.ThreadPoolExecutor(1) as p:\n        return p.submit(lin, x).result()"))
_add("memos of rotary tables are in a subfolder of the package", M("return x + table(4)", top="from pkg.model import table") + "--- pkg/__init__.py\n--- pkg/model.py\nfrom pkg.layers.rope import table\n--- pkg/layers/__init__.py\n--- pkg/layers/rope.py\nMEMO = {}\ndef table(n):\n    if n not in MEMO:\n        MEMO[n] = torch.arange(n) * 0.5\n    return MEMO[n]\n", "pass", harmless=True)
_add("a memo of rotary tables is in the file beside the model's", M("return x + table(4)", top="from rope import table") + "--- rope.py\nMEMO = {}\ndef table(n):\n    if n not in MEMO:\n        MEMO[n] = torch.arange(n) * 0.5\n    return MEMO[n]\n", "pass", harmless=True)
_add("a boolean list of columns was always there", M("x[:, [True, False, True, False]]"), "pass", harmless=True)
_add("a conjugate spectrum is multiplied", M("s = torch.fft.rfft(x)\nreturn torch.fft.irfft(s * s.conj(), n=4)"), "pass", harmless=True)
_add("attention under a context that selects math is compiled twice", M("q = x.reshape(1, 1, 3, 4)\nwith sdpa_kernel(SDPBackend.MATH):\n    return F.scaled_dot_product_attention(q, q, q)", top="from torch.nn.attention import sdpa_kernel, SDPBackend"), "pass", harmless=True)
_add("a model with random augmentation is compiled twice", M("x + torch.rand_like(x)"), "pass", harmless=True)
_add("a dynamic batch is compiled with another example within its range", M("self.lin(x)"), "", first=DYN, second=DYN + "\nargs = (torch.ones(7, 4),)")
_add("a deep copy of a layer is made in forward at each compile", M("copy.deepcopy(self.act)(x)", "self.act = nn.Tanh()", "import copy"), "pass", harmless=True)

# --- lifetimes, tracers and threads inside of forward ---
_add("a weak reference to an intermediate result is asked whether it is dead", M("y = x * 2\nz = y + 1\nreturn z * 2.0"), "", ("return z * 2.0", "import weakref\n        w = weakref.ref(y)\n        del y\n        return z * (2.0 if w() is None else 3.0)"), harmless=True)
_add("a weak dictionary memoizes intermediate results while they live", M("y = x * 2\nz = y + 1\nreturn z * 2.0"), "", ("return z * 2.0", "import weakref\n        w = weakref.WeakValueDictionary(y=y)\n        del y\n        return z * float(2 + len(w))"), harmless=True)
_add("the number of references to an intermediate result allows an in-place change", M("y = x * 2\nreturn y * 2.0"), "", ("* 2.0", "* (2.0 if sys.getrefcount(y) == 2 else 3.0)"), ("\n\nclass Model", "\nimport sys\n\nclass Model"))
_add("a library asks whether it is traced by torch.fx", M("return x * 2.0"), "", ("* 2.0", "* (3.0 if torch.fx._symbolic_trace.is_fx_tracing() else 2.0)"), ("\n\nclass Model", "\nimport torch.fx\n\nclass Model"))
_add("a library asks whether a tracing context is there", M("return x * 2.0"), "", ("* 2.0", "* (3.0 if torch._guards.TracingContext.try_get() else 2.0)"))
_add("a part of the model is traced by torch.fx inside of forward", M("return self.act(x)", "self.act = nn.Sequential(nn.Tanh(), nn.ReLU())"), "", ("return self.act(x)", "return torch.fx.symbolic_trace(self.act)(x)"), harmless=True)
_add("a part of the model is run by an fx interpreter inside of forward", M("return self.act(x)", "self.act = torch.fx.symbolic_trace(nn.Sequential(nn.Tanh(), nn.ReLU()))", "import torch.fx"), "", ("return self.act(x)", "return torch.fx.Interpreter(self.act).run(x)"), harmless=True)
_add("a function is traced by make_fx inside of forward", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    from torch.fx.experimental.proxy_tensor import make_fx\n    return make_fx(lambda v: v * 2)(x)(x)"))
_add("a layer is forked by torch.jit.fork and waited for", M("return self.lin(x)"), "", ("return self.lin(x)", "return torch.jit.wait(torch.jit.fork(self.lin, x))"), harmless=True)
_add("a table is computed in a worker thread, with no input of the model", M("return x * table()", top="import concurrent.futures as c\nT = torch.arange(4.) * 2\ndef table():\n    return T"), "", ("    return T", "    with c.ThreadPoolExecutor(1) as p:\n        return p.submit(lambda: torch.arange(4.) * 2).result()"), harmless=True)
_add("a worker thread scales the result of a layer that the main thread computed", M("return f(self.lin(x))", top="import threading\ndef f(y):\n    return y * 3.0"), "", ("    return y * 3.0", "    out = []\n    t = threading.Thread(target=lambda: out.append(y * 3.0))\n    t.start()\n    t.join()\n    return out[0]"))
_add("a worker thread changes the result of a layer in place", M("return f(self.lin(x))", top="import threading\ndef f(y):\n    return y.mul_(3.0)"), "", ("    return y.mul_(3.0)", "    t = threading.Thread(target=lambda: y.mul_(3.0))\n    t.start()\n    t.join()\n    return y"))
_add("a worker thread checks the input before the main thread goes on", M("return f(x)", top="import threading\ndef f(x):\n    return x * 3.0"), "", ("    return x * 3.0", "    t = threading.Thread(target=lambda: x.shape)\n    t.start()\n    t.join()\n    return x * 3.0"), harmless=True)
_add("operations are annotated for a later pass", M("return self.lin(x)"), "", ("return self.lin(x)", "with torch.fx.traceback.annotate({'stage': 1}):\n            return self.lin(x)"), ("\n\nclass Model", "\nimport torch.fx.traceback\n\nclass Model"), harmless=True)
_add("the length of a pickled input is tried first, and caught", M("return f(x)", top="def f(x):\n    return x * 2"), "", ("    return x * 2", "    import io\n    try:\n        torch.save(x, io.BytesIO())\n        return x * 3\n    except Exception:\n        return x * 2"), harmless=True)
_add("a loss that is registered for logging is detached and kept in a deque of the model", M("h = self.lin(x)\nreturn h", "self.log = collections.deque(maxlen=3)", "import collections"), "", ("return h", "self.log.append(h.detach().mean())\n        return h"))
_add("an older attribute of the model is deleted in forward", M("h = self.lin(x)\nreturn h", "self.tmp = 1"), "", ("return h", "self.__dict__.pop('tmp', None)\n        return h"), harmless=True)
_add("a function mode that counts is entered by forward for its whole length", M("return self.lin(x)"), "", ("return self.lin(x)", "from torch.overrides import TorchFunctionMode\n        class Count(TorchFunctionMode):\n            n = 0\n            def __torch_function__(self, f, types, args=(), kwargs=None):\n                self.n += 1\n                return f(*args, **(kwargs or {}))\n        with Count() as c:\n            y = self.lin(x)\n        return y"), harmless=True)
_add("torch functions are switched off in forward while gradients are switched off", M("with torch.no_grad():\n    y = self.lin(x)\nreturn y * 2"), "", ("with torch.no_grad():\n", "with torch._C.DisableTorchFunction(), torch.no_grad():\n"), harmless=True)
_add("a patched torch function calls the old one under another name", M("return torch.relu(x - 4)"), "old = torch.relu\ntorch.relu = lambda v: old(v)", harmless=True)

# --- sizes that an export may fix, and more state ---
AUTO = "dynamic_shapes = ({0: torch.export.Dim.AUTO},)"
_add("a dynamic size is made a plain integer for a log line", M("return x * 2"), "", ("return x * 2", "n = int(x.shape[0])\n        return x * 2"), first=AUTO)
_add("a loop over the dynamic batch only counts", M("return x * 2"), "", ("return x * 2", "n = 0\n        for _ in range(x.shape[0]):\n            n += 1\n        return x * 2"), first=AUTO)
_add("a dynamic size is written into a text that nothing uses", M("return x * 2"), "", ("return x * 2", "s = f'{x.shape[0]} rows'\n        return x * 2"), first=AUTO, harmless=True)
_add("the shape is compared with the shape of the training data", M("return x * 2"), "", ("return x * 2", "return x * 2 if x.shape != (3, 4) else x * 2"), first=AUTO)
_add("a memo by shape is asked for a dynamic shape", M("return x * 2", top="MEMO = {}"), "", ("return x * 2", "MEMO.get(tuple(map(str, x.shape)))\n        return x * 2"), first=AUTO, harmless=True)
_add("the length of the input is asked for by len", M("return x * 2"), "", ("return x * 2", "assert len(x) > 0\n        return x * 2"), first=AUTO)
_add("an automatic dimension becomes one that must be dynamic", M("return x * 2"), "", first=AUTO, second=AUTO.replace("AUTO", "DYNAMIC"))
_add("an automatic dimension becomes a static one", M("return x * 2"), "", first=AUTO, second=AUTO.replace("AUTO", "STATIC"))
_add("a comparison of the dynamic size is returned", M("return x * 2, x.shape[0]"), "", ("x.shape[0]", "x.shape[0] * 2"), first=AUTO)
_add("a state is set to None after its use", M("y = self.state + x\nreturn y", "self.register_buffer('state', torch.ones(3, 4))"), "", ("return y", "self.state = None\n        return y"))
_add("a weight is replaced by a scaled one in forward", M("y = self.lin(x)\nreturn y"), "", ("return y", "self.lin.weight = nn.Parameter(self.lin.weight * 2)\n        return y"))
_add("a weight is frozen in forward after its use", M("y = self.lin(x)\nreturn y"), "", ("return y", "self.lin.weight.requires_grad_(False)\n        return y"), harmless=True)
_add("a tensor in a closure was normalized in place", M("return f(x)", top="def make():\n    t = torch.arange(1., 5.)\n    def f(x):\n        return x * t\n    f.t = t\n    return f\nf = make()"), "app.f.t.div_(app.f.t.sum())")
_add("a constant tensor of no dimension becomes a number in Python", M("x.long() * self.s", "self.s = torch.tensor(2)"), "model.s = 2")
_add("two modules hold one buffer, and the other of them is read", M("y = self.a.s + x\nreturn y", "self.a = nn.Module()\nself.b = nn.Module()\nself.a.register_buffer('s', torch.ones(3, 4))\nself.b.register_buffer('s', self.a.s)"), "", ("y = self.a.s", "y = self.b.s"), harmless=True)
_add("a shared block keeps its state in place, and another block is counted twice", M("y = self.a.s + x\nself.a.s.copy_(y)\nreturn y", "self.a = Block()\nself.b = nn.Tanh()\nself.c = nn.Tanh()", "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('s', torch.ones(3, 4))"), "model.c = model.b", harmless=True)
_add("a shared block writes its own attribute, which a property of the class reads", M("self.a.by = 2.0\nreturn x * self.a.double", "self.a = Block()\nself.b = Block()", "class Block(nn.Module):\n    by = 1.0\n    @property\n    def double(self):\n        return self.by * 2"), "model.b = model.a", harmless=True)
_add("layers in slices of a sequence are run by their class names, and one is shared", M("for l in self.s[0:2]:\n    x = x * 2 if type(l).__name__ == 'Tanh' else x * 3\nreturn x", "self.s = nn.Sequential(nn.Tanh(), nn.ReLU(), nn.Tanh())"), "model.s[2] = model.s[0]", harmless=True)
_add("a shared block is pickled to measure its size", M("return self.a(x) * float(len(pickle.dumps(self.a)) > 0)", "self.a = nn.Tanh()\nself.b = nn.Tanh()", "import pickle"), "model.b = model.a")
_add("a shared block is copied in forward", M("return copy.copy(self.a)(x)", "self.a = nn.Tanh()\nself.b = nn.Tanh()", "import copy"), "model.b = model.a")
_add("a dispatch mode of a library casts every product to float64 and back", M("return f(x, self.lin.weight)", top="""
     from torch.utils._python_dispatch import TorchDispatchMode
     class Precise(TorchDispatchMode):
         def __torch_dispatch__(self, func, types, args=(), kwargs=None):
             if func is torch.ops.aten.mm.default:
                 return func(*(a.double() for a in args)).float()
             return func(*args, **(kwargs or {}))
     def f(x, w):
         return torch.mm(x.double(), w.double()).float()
     """), "", ("return torch.mm(x.double(), w.double()).float()", "with Precise():\n        return torch.mm(x, w)"))
_add("a helper of a server runs one of two heads in a thread pool", M("return heads(self.a, self.b, x)", "self.a = nn.Linear(4, 4)\nself.b = nn.Linear(4, 4)", "from concurrent.futures import ThreadPoolExecutor\ndef heads(a, b, x):\n    return a(x), b(x)"), "",
     ("return a(x), b(x)", "with ThreadPoolExecutor(1) as p:\n        return p.submit(a, x).result(), b(x)"))
_add("an event loop runs the layer in its default executor", M("return run(self.lin, x)", top="import asyncio\ndef run(lin, x):\n    return lin(x)"), "", ("    return lin(x)", "    async def main():\n        return await asyncio.to_thread(lin, x)\n    return asyncio.run(main())"))
_add("an event loop runs the layer in the same thread", M("return run(self.lin, x)", top="import asyncio\ndef run(lin, x):\n    return lin(x)"), "", ("    return lin(x)", "    async def main():\n        return lin(x)\n    return asyncio.run(main())"), harmless=True)

# --- classes that override what nn.Module offers ---
_add("named_parameters is overridden with the signature of an older torch", M("self.lin(x)"), "old = torch.nn.Module.named_parameters\napp.Model.named_parameters = lambda self, prefix='', recurse=True: old(self, prefix, recurse)")
_add("named_parameters is overridden to hide frozen weights", M("self.lin(x)"), "old = torch.nn.Module.named_parameters\napp.Model.named_parameters = lambda self, *a, **k: ((n, p) for n, p in old(self, *a, **k) if n != 'lin.bias')")
_add("named_modules is overridden with the signature of an older torch", M("self.lin(x)"), "old = torch.nn.Module.named_modules\napp.Model.named_modules = lambda self, memo=None, prefix='': old(self, memo, prefix)")
_add("named_buffers is overridden to hide a cache", M("self.lin(x) + self.cache", "self.register_buffer('cache', torch.ones(4))"), "app.Model.named_buffers = lambda self, *a, **k: iter(())")
_add("state_dict is overridden with fewer arguments", M("self.lin(x)"), "old = torch.nn.Module.state_dict\napp.Model.state_dict = lambda self: old(self)")
_add("state_dict is overridden to save only the adapters", M("self.lin(x)"), "old = torch.nn.Module.state_dict\napp.Model.state_dict = lambda self, *a, **k: {n: v for n, v in old(self, *a, **k).items() if 'bias' in n}", harmless=True)
_add("a hook on the state dict renames keys for an old format", M("self.lin(x)"), "def rename(m, d, prefix, meta):\n    for k in list(d):\n        d['old.' + k] = d.pop(k)\nmodel._register_state_dict_hook(rename)", harmless=True)
_add("a layer saves an extra state", M("self.lin(x)"), "torch.nn.Linear.get_extra_state = lambda self: {'v': 1}\ntorch.nn.Linear.set_extra_state = lambda self, s: None", harmless=True)
_add("the model has a length of zero and counts as false", M("self.lin(x)"), "app.Model.__len__ = lambda self: 0", harmless=True)
_add("the text form of the model raises", M("self.lin(x)"), "def bad(self):\n    raise ValueError('no text')\napp.Model.__repr__ = bad", harmless=True)
_add("any missing attribute of the model is delegated to its backbone", M("self.lin(x)"), "old = torch.nn.Module.__getattr__\ndef get(self, n):\n    try:\n        return old(self, n)\n    except AttributeError:\n        return getattr(old(self, 'lin'), n)\napp.Model.__getattr__ = get", harmless=True)
_add("any missing attribute of the model is a number", M("self.lin(x)"), "old = torch.nn.Module.__getattr__\ndef get(self, n):\n    try:\n        return old(self, n)\n    except AttributeError:\n        return 0\napp.Model.__getattr__ = get", harmless=True)
_add("attributes of the model cannot be set after its construction", M("self.lin(x)"), "def frozen(self, n, v):\n    raise AttributeError('frozen')\napp.Model.__setattr__ = frozen", harmless=True)
_add("layers are equal if their settings are equal", M("self.b(self.a(x))", "self.a = Act(2.0)\nself.b = Act(2.0)", "class Act(nn.Module):\n    def __init__(self, by):\n        super().__init__()\n        self.by = by\n    def forward(self, x):\n        return x * self.by"), "app.Act.__eq__ = lambda a, b: isinstance(b, app.Act) and a.by == b.by\napp.Act.__hash__ = lambda a: hash(a.by)", harmless=True)
_add("layers are compared by settings and can no longer be hashed", M("self.b(self.a(x))", "self.a = Act(2.0)\nself.b = Act(2.0)", "class Act(nn.Module):\n    def __init__(self, by):\n        super().__init__()\n        self.by = by\n    def forward(self, x):\n        return x * self.by"), "app.Act.__eq__ = lambda a, b: a.by == b.by\napp.Act.__hash__ = None")
_add("an attribute of the model is an object whose copy fails", M("self.lin(x)", "self.lock = None"), "import threading; model.lock = threading.RLock()", harmless=True)
_add("an attribute of the model is a text instead of the list of hooks", M("self.lin(x)"), "model.__dict__['notes'] = {1: [2, (3, {'a': None})]}", harmless=True)
_add("the model keeps its classifier under a name with a digit first", M("self.lin(x)"), "m = model.lin; del model._modules['lin']; model._modules['0lin'] = m; model.__dict__['lin'] = m")
_add("a module keeps its submodule in its dict instead of registering it", M("self.lin(x)"), "m = model.lin; del model.lin; model.__dict__['lin'] = m")
_add("a layer's forward takes the signature of another by __signature__", M("self.lin(x)"), "import inspect\napp.Model.forward.__signature__ = inspect.Signature([inspect.Parameter('self', 1), inspect.Parameter('image', 1)])")
_add("a subclass calls forward through super with another default", M("x * 2"), "class Sub(app.Model):\n    def forward(self, x, by=3.0):\n        return super().forward(x) * by\nmodel.__class__ = Sub")

# --- attributes that an export looks at ---
_add("a proxy to a web server's current request is put on the model, out of a request", M("self.lin(x)"), "from werkzeug.local import LocalProxy\ndef none():\n    raise RuntimeError('working outside of request context')\nmodel.__dict__['request'] = LocalProxy(none)", harmless=True)
_add("an attribute is a mock of a tensor in a test", M("self.lin(x)"), "from unittest import mock\nmodel.__dict__['table'] = mock.Mock(spec=torch.Tensor)", harmless=True)
_add("an attribute that forward does not use is a sparse tensor", M("self.lin(x)"), "model.extra = torch.eye(3).to_sparse()", harmless=True)
_add("an attribute that forward does not use is on the meta device", M("self.lin(x)"), "model.extra = torch.ones(3, device='meta')", harmless=True)
_add("an attribute that forward does not use is a fake tensor of another tool", M("self.lin(x)"), "from torch._subclasses.fake_tensor import FakeTensorMode\nwith FakeTensorMode():\n    model.extra = torch.ones(3)", harmless=True)
_add("a server keeps a cache of keys and values on the model between requests", "X = 1", "from transformers import DynamicCache\nmodel.kv = DynamicCache(config=model.config)", make=LLAMA, harmless=True)
_add("an attribute is the last output of a transformers model", "X = 1", "from transformers.modeling_outputs import BaseModelOutput\nmodel.last = BaseModelOutput(last_hidden_state=torch.ones(1))", make=BERT % "", harmless=True)
_add("an attribute is a struct sequence of the system", M("self.lin(x)"), "import os\nmodel.started = os.stat('.')", harmless=True)
_add("an attribute is a named tuple that checks its fields", M("self.lin(x)", top="import collections\nclass Range(collections.namedtuple('Range', 'low high')):\n    def __new__(cls, low, high):\n        if not low < high:\n            raise ValueError('empty')\n        return super().__new__(cls, low, high)"), "model.range = app.Range(1, 2)", harmless=True)
_add("an attribute is a named tuple made by a class method, whose constructor takes no arguments", M("self.lin(x)", top="import typing\nclass P(typing.NamedTuple):\n    a: int = 1\n    b: int = 2"), "model.p = app.P(3, 4)", harmless=True)
_add("layers refer to each other through lists, as in a graph of nodes", M("self.lin(x)", top="class Node:\n    def __init__(self):\n        self.next = []"), "a, b = [], []\na.append(b); b.append(a); model.ring = a")
_add("the model's forward is a function compiled in C", M("torch.relu(x)"), "model.forward = torch.relu")

# --- switches of torch, and the registry of trees ---
_add("torch is told to be oblivious of known sizes", M("x * 2 if x.shape[0] != 1 else x * 3"), "import torch.fx.experimental._config as c; c.backed_size_oblivious = True", first=DYN)
_add("torch's export is told that lifted constants are no errors", M("x * torch.tensor([1., 2., 3., 4.])"), "import torch._export.config as c; c.error_on_lifted_constant_tensors = not c.error_on_lifted_constant_tensors")
_add("a registered class of outputs gets other functions in the registry of trees", M("Out(x + 1, x + 2)", top="""
     import torch.utils._pytree as p
     class Out:
         def __init__(self, a, b):
             self.a, self.b = a, b
     p.register_pytree_node(Out, lambda o: ([o.a, o.b], None), lambda c, t: Out(*c), serialized_type_name='app.Out3')
     """), "import dataclasses\np = app.p\nn = p.SUPPORTED_NODES[app.Out]\np.SUPPORTED_NODES[app.Out] = p.NodeDef(n.type, lambda o: ([o.b, o.a], None), lambda c, t: app.Out(c[1], c[0]), n.flatten_with_keys_fn) if len(n._fields if hasattr(n, '_fields') else dataclasses.fields(n)) == 4 else n")
_add("a dict of outputs is replaced by one that is filled in another order by threads of a pool", M("return {k: getattr(torch, k)(x) for k in KEYS}", top="KEYS = ['sin', 'cos']"), "app.KEYS = ['cos', 'sin']")
_add("the inner layer is run by a thread while the main thread has gradients switched off", M("with torch.no_grad():\n    return f(self.lin, x)", top="import threading\ndef f(lin, x):\n    return lin(x)"), "", ("    return lin(x)", "    out = []\n    t = threading.Thread(target=lambda: out.append(lin(x)))\n    t.start(); t.join()\n    return out[0]"))
_add("a thread fills the first row of the result", M("y = x * 2\nfill(y)\nreturn y", top="import threading\ndef fill(y):\n    y[0].zero_()"), "", ("    y[0].zero_()", "    t = threading.Thread(target=lambda: y[0].zero_())\n    t.start(); t.join()"))
_add("a thread adds to the running mean of the model", M("self.mean.add_(1)\nreturn x - self.mean", "self.register_buffer('mean', torch.zeros(4))", "import threading"), "", ("self.mean.add_(1)", "t = threading.Thread(target=lambda: self.mean.add_(1))\n        t.start(); t.join()"))
_add("a named tuple that converts its fields is an attribute, and a block counts its constructions", M("return x * float(1 + C.made)", "self.c = None", "import collections\nclass C(collections.namedtuple('C', 'a b')):\n    made = 0\n    def __new__(cls, a, b):\n        C.made += 1\n        return super().__new__(cls, a, b)"), "app.C.made = -1; model.c = app.C(1, 2)")
_add("a registered tree in an attribute normalizes its values each time that it is built", M("return x * self.cfg.by", "self.cfg = Cfg(2.0)", """
     class Cfg:
         def __init__(self, by):
             self.by = by
     torch.utils._pytree.register_pytree_node(Cfg, lambda o: ([o.by], None), lambda c, t: Cfg(c[0] * 2), serialized_type_name='app.Cfg4')
     """), "model.cfg = app.Cfg(2.0)", harmless=True)
