"""Changes that attack a replay: what a model's code can read without calling an operator, and what users do between two runs.

Most models of the first part ask a question about a tensor or about the process, and scale by ``A`` or by ``B``. Both numbers
are the same when the trace is recorded; one is changed afterwards. If an answer differs between a replay and an export, the
old program is found. They are added to ``field_scenarios``.
"""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

# 1. Questions that need no operator.

_ASK = "A = 2.0\nB = 2.0\nimport sys, os, gc, weakref, inspect, threading, contextlib, warnings, traceback, types, copy, functools\n"


def _ask(doc: str, question: str, before: str = "y = self.lin(x)", init: str = "pass", top: str = "", **more: object) -> None:
    """Add two pairs: the number for yes is another, and the number for no."""
    text = _model(f"{before}\nby = A if {question} else B\nreturn y * by", init, _ASK + top)
    for name in "AB":
        _add(f"asks {doc}: {name} is another", text, f"app.{name} = 3.0", **more)


_RESULTS = (
    ("whether a result is a view", "y._is_view()", "y = x.reshape(-1)"),
    ("whether a result of a split is a view", "y._is_view()", "y = x.chunk(2)[1]"),
    ("whether a result's base is the input", "y._base is x", "y = x.view(-1)"),
    ("whether a view's base is a result", "y._base is z", "z = x * 2\ny = z.view(-1)[2:]"),
    ("whether a flattened tensor is the same one", "y is x", "y = x.contiguous()"),
    ("whether a cast tensor is the same one", "y is x", "y = x.to(torch.float32)"),
    ("the offset of a slice", "y.storage_offset() == 4", "y = x[1:]"),
    ("the offset of a diagonal's view", "y.storage_offset()", "y = x.diagonal(1)"),
    ("the size of a slice's storage", "y.untyped_storage().nbytes() == 48", "y = x[1:]"),
    ("the size of an expanded tensor's storage", "y.untyped_storage().nbytes() < 10", "y = x.sum().expand(3, 4)"),
    ("whether two views share their storage", "y.untyped_storage()._cdata == x.untyped_storage()._cdata", "y = x.view(-1)"),
    ("whether two results share their storage", "y.untyped_storage()._cdata == z.untyped_storage()._cdata", "z = x * 2\ny = z.t()"),
    ("the strides of a result", "y.stride() == (1, 4)", "y = (x * 2).t()"),
    ("whether a permuted result is contiguous", "y.is_contiguous()", "y = (x * 2).t()"),
    ("whether a sum of permuted ones is contiguous", "y.is_contiguous()", "y = x.t() + x.t()"),
    ("whether a convolution's result is channels_last", "y.is_contiguous(memory_format=torch.channels_last)", "y = F.conv2d(x.view(1, 3, 2, 2).contiguous(memory_format=torch.channels_last), self.k)"),
    ("the order of dimensions", "y.dim_order() == (1, 0)", "y = x.t() * 2"),
    ("whether a result requires a gradient", "y.requires_grad", "y = self.lin(x)"),
    ("whether a result of no_grad requires one", "y.requires_grad", "with torch.no_grad():\n    y = self.lin(x)"),
    ("whether a detached result requires one", "y.requires_grad", "y = self.lin(x).detach()"),
    ("whether a result is a leaf", "y.is_leaf", "y = self.lin(x)"),
    ("whether a plain result is a leaf", "y.is_leaf", "y = x * 2"),
    ("a result's grad_fn", "'Addmm' in type(y.grad_fn).__name__", "y = self.lin(x)"),
    ("a view's grad_fn", "'View' in type(y.grad_fn).__name__", "y = self.lin(x).view(-1)"),
    ("the depth of the graph of gradients", "len(y.grad_fn.next_functions) == 3", "y = self.lin(x)"),
    ("which output a result is", "y.output_nr == 1", "y = self.lin(x).chunk(2, 1)[1]"),
    ("the version of a result", "y._version == 2", "y = x * 2\ny.add_(1)\ny.mul_(2)"),
    ("the version of a base after a view was written", "y._version == 1", "y = x * 2\ny[0].add_(1)"),
    ("the version of an index_put", "y._version == 1", "y = x.clone()\ny[y > 3] = 0.0"),
    ("the version of out=", "y._version == 1", "y = torch.empty(3, 4)\ntorch.mul(x, 2, out=y)"),
    ("whether an in-place result is the tensor", "z is y", "y = x * 2\nz = y.add_(1)"),
    ("whether out= returns the tensor", "z is y", "y = torch.empty(3, 4)\nz = torch.mul(x, 2, out=y)"),
    ("whether a result is conjugated", "y.is_conj()", "y = torch.complex(x, x).conj()"),
    ("whether the imaginary part is negative lazily", "y.is_neg()", "y = torch.complex(x, x).conj().imag"),
    ("whether a result is an inference tensor", "y.is_inference()", "y = x * 2"),
    ("a result's class", "type(y) is torch.Tensor", "y = x * 2"),
    ("whether a result is a parameter", "isinstance(y, nn.Parameter)", "y = self.lin.weight"),
    ("an attribute that the model set on a result", "getattr(y, 'tag', 0) == 1", "y = x * 2\ny.tag = 1\ny = y.view(3, 4)"),
    ("an attribute after an in-place operator", "getattr(y, 'tag', 0) == 1", "y = x * 2\ny.tag = 1\ny = y.add_(1)"),
    ("whether a result has attributes", "bool(vars(y))", "y = x * 2"),
    ("a weak reference to a dropped result", "r() is None", "z = x * 3\nr = weakref.ref(z)\ny = z * 2\ndel z"),
    ("a weak reference to a dropped result, after a collection", "r() is None", "z = x * 3\nr = weakref.ref(z)\ny = z * 2\ndel z\ngc.collect()"),
    ("a finalizer of a result", "bool(seen)", "seen = []\nz = x * 3\nweakref.finalize(z, seen.append, 1)\ny = z * 2\ndel z"),
    ("a result's internal overlap", "torch._debug_has_internal_overlap(y)", "y = x[:1].expand(3, 4)"),
    ("whether memory is pinned", "y.is_pinned()", "y = x * 2"),
    ("whether memory is shared", "y.is_shared()", "y = x * 2"),
    ("a device's index", "y.device.index is None", "y = x * 2"),
    ("a type's name", "y.type() == 'torch.FloatTensor'", "y = x * 2"),
    ("a text of a result", "'Fake' in repr(y)", "y = x * 2"),
    ("whether a result is nested or sparse", "y.is_nested or y.layout != torch.strided", "y = x * 2"),
    ("whether a result is wrapped by functorch", "torch._C._functorch.is_functorch_wrapped_tensor(y)", "y = x * 2"),
    ("whether a result is functional", "torch._is_functional_tensor(y)", "y = x * 2"),
    ("whether a result has Python's key", "torch._C._dispatch_keys(y).has(torch._C.DispatchKey.Python)", "y = x * 2"),
    ("whether a result is fake", "torch._subclasses.fake_tensor.is_fake(y)", "y = x * 2"),
    ("whether a result has a torch function", "torch.overrides.has_torch_function((y,))", "y = x * 2"),
    ("whether a promoted dtype is another", "y.dtype == torch.float64", "y = x * torch.ones(3, 4, dtype=torch.float64)"),
    ("whether a multiplied integer is floating", "y.is_floating_point()", "y = torch.arange(12).view(3, 4) * 0.5"),
    ("the dtype under autocast", "y.dtype == torch.bfloat16", "with torch.autocast('cpu'):\n    y = self.lin(x)"),
    ("whether a constant has its value", "z.item() > 2", "z = torch.tensor(3.0)\ny = x * 2"),
    ("whether a computed constant has its value", "bool((z + 1) > 2)", "z = torch.tensor(3.0)\ny = x * 2"),
    ("a constant's value after it was written", "z.item() == 7", "z = torch.tensor(3)\nz.add_(4)\ny = x * 2"),
    ("the grad of a result", "y.grad is None", "y = self.lin(x)\ny.retain_grad()"),
    ("whether a result retains its grad", "y.retains_grad", "y = self.lin(x)\ny.retain_grad()"),
    ("a gradient of the loss inside forward", "g.requires_grad", "with torch.enable_grad():\n    w = x.detach().requires_grad_()\n    y = (w * w).sum()\n    g, = torch.autograd.grad(y, w, create_graph=True)\ny = g"),
    ("the storage's size after a clone", "y.untyped_storage().nbytes() == 32", "y = x[1:].clone()"),
    ("the strides of empty_like of a permuted tensor", "y.stride() == (1, 4)", "y = torch.zeros_like(x.t())"),
    ("the strides of a result of sort", "y.stride() == (1, 4)", "y = x.t().sort(1)[0]"),
    ("the strides of a matmul of permuted ones", "y.is_contiguous()", "y = x.t() @ x"),
    ("the strides of a cumsum of a view", "y.is_contiguous()", "y = x.t().cumsum(0)"),
    ("the strides of a batch's permuted softmax", "y.is_contiguous()", "y = x.view(3, 2, 2).permute(2, 0, 1).softmax(0)"),
    ("whether attention's result is contiguous", "y.is_contiguous()", "q = x.view(1, 3, 2, 2).transpose(1, 2)\ny = F.scaled_dot_product_attention(q, q, q)"),
)
for _doc, _question, _before in _RESULTS:
    _ask(_doc, _question, _before, "self.k = nn.Parameter(torch.ones(2, 3, 1, 1))" if "self.k" in _before else "pass")

_WEIGHTS = (
    ("whether a weight is a parameter", "isinstance(self.lin.weight, nn.Parameter)", "pass"),
    ("a weight's exact class", "type(self.lin.weight) is nn.Parameter", "pass"),
    ("whether a weight is a leaf", "self.lin.weight.is_leaf", "pass"),
    ("whether a weight has a gradient", "self.lin.weight.grad is None", "pass"),
    ("the version of a weight", "self.lin.weight._version == 1", "with torch.no_grad():\n    self.lin.weight.add_(1)"),
    ("an attribute of a weight", "getattr(self.lin.weight, 'tag', 0) == 1", "self.lin.weight.tag = 1"),
    ("the hooks of a weight", "bool(self.lin.weight._backward_hooks)", "self.lin.weight.register_hook(lambda g: g)"),
    ("whether two weights are one", "self.lin.weight is self.other.weight", "self.other = nn.Linear(4, 4)\nself.other.weight = self.lin.weight"),
    ("whether two weights share memory", "self.a.untyped_storage()._cdata == self.b.untyped_storage()._cdata", "self.a = nn.Parameter(torch.ones(4))\nself.b = nn.Parameter(self.a.data[:2])"),
    ("a weight's offset", "self.a.storage_offset() == 2", "self.a = nn.Parameter(torch.arange(6.)[2:])"),
    ("the size of a weight's storage", "self.a.untyped_storage().nbytes() == 24", "self.a = nn.Parameter(torch.arange(6.)[2:])"),
    ("a weight's identity that was kept", "id(self.lin.weight) == self.kept", "self.kept = id(self.lin.weight)"),
    ("a weight in a set that was kept", "self.lin.weight in self.kept", "self.kept = {self.lin.weight}"),
    ("a weight behind a weak reference", "self.kept() is self.lin.weight", "self.kept = weakref.ref(self.lin.weight)"),
    ("a weight in a list", "self.kept[0] is self.lin.weight", "self.kept = [self.lin.weight]"),
    ("a weight's memory format", "self.k.is_contiguous(memory_format=torch.channels_last)", "self.k = nn.Parameter(torch.ones(2, 3, 2, 2).to(memory_format=torch.channels_last))"),
    ("how many parameters there are", "len(list(self.parameters())) == 2", "pass"),
    ("the names of the state", "list(self.state_dict()) == ['lin.weight', 'lin.bias']", "pass"),
    ("the state's class of tensors", "type(self.state_dict()['lin.weight']) is torch.Tensor", "pass"),
    ("whether a buffer is persistent", "'buf' in self._non_persistent_buffers_set", "self.register_buffer('buf', torch.ones(4))"),
    ("whether a buffer is a Buffer", "isinstance(self.buf, nn.Buffer)", "self.buf = nn.Buffer(torch.ones(4))"),
    ("whether a weight is an inference tensor", "self.lin.weight.is_inference()", "pass"),
    ("whether a plain tensor attribute is fake", "type(self.t) is torch.Tensor", "self.t = torch.ones(4)"),
    ("the version of a plain tensor attribute", "self.t._version == 1", "self.t = torch.ones(4)\nself.t.add_(1)"),
    ("a module's class after an export", "type(self) is Model", "pass"),
    ("whether a layer's forward is its class's", "'forward' in vars(self.lin)", "pass"),
    ("whether a parameter is in the dictionary", "type(self._modules['lin']._parameters['bias']).__name__ == 'Parameter'", "pass"),
)
for _doc, _question, _init in _WEIGHTS:
    _ask(_doc, _question, init=_init)

_PROCESS = (
    ("whether torch exports", "torch.compiler.is_exporting()"),
    ("whether torch compiles", "torch.compiler.is_compiling()"),
    ("whether Dynamo compiles", "torch.compiler.is_dynamo_compiling()"),
    ("whether torch.jit traces", "torch.jit.is_tracing()"),
    ("whether ONNX exports", "torch.onnx.is_in_onnx_export()"),
    ("whether fx traces", "torch.fx._symbolic_trace.is_fx_tracing()"),
    ("whether make_fx traces", "torch.fx._symbolic_trace.is_fx_symbolic_tracing()"),
    ("transformers whether it compiles", "__import__('transformers').utils.is_torchdynamo_compiling()"),
    ("transformers whether it exports", "__import__('transformers').utils.is_torchdynamo_exporting()"),
    ("transformers whether it traces", "__import__('transformers').utils.import_utils.is_tracing(x)"),
    ("transformers whether a proxy is there", "__import__('transformers').utils.generic.is_torch_fx_proxy(x)"),
    ("whether gradients are on", "torch.is_grad_enabled()"),
    ("whether autocast is on", "torch.is_autocast_enabled('cpu')"),
    ("whether inference mode is on", "torch.is_inference_mode_enabled()"),
    ("for a mode of functions", "torch._C._len_torch_function_stack() > 0"),
    ("for two modes of functions", "torch._C._len_torch_function_stack() > 1"),
    ("for a mode of dispatch", "torch._C._len_torch_dispatch_stack() > 0"),
    ("for two modes of dispatch", "torch._C._len_torch_dispatch_stack() > 1"),
    ("for a tracing context", "torch._guards.TracingContext.try_get() is None"),
    ("for a fake mode", "torch._guards.detect_fake_mode() is None"),
    ("for the input's fake mode", "torch._guards.detect_fake_mode([x]) is None"),
    ("for the fake mode's symbols", "getattr(getattr(x, 'fake_mode', None), 'shape_env', None) is None"),
    ("the stack for torch.export", "any('torch/export' in f.filename for f in inspect.stack(0))"),
    ("the stack for the module's caller", "sys._getframe(1).f_code.co_name == '_call_impl'"),
    ("for the main thread", "threading.current_thread() is threading.main_thread()"),
    ("for a function's level", "torch._C._functorch.maybe_current_level() is None"),
    ("whether deterministic algorithms are on", "torch.are_deterministic_algorithms_enabled()"),
    ("whether anomaly detection is on", "torch.is_anomaly_enabled()"),
    ("for the default device", "torch.get_default_device().type == 'cpu'"),
    ("how many threads there are", "torch.get_num_threads() == 1"),
    ("the fast path's switch", "torch.backends.mha.get_fastpath_enabled()"),
    ("whether profiling is on", "torch.autograd._profiler_enabled()"),
    ("whether fx keeps metadata", "torch.fx.traceback.has_preserved_node_meta()"),
    ("for the dispatcher's skipped keys", "torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.ADInplaceOrView)"),
    ("the predispatch key", "torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch)"),
    ("for a global forward hook", "bool(torch.nn.modules.module._global_forward_pre_hooks)"),
    ("whether Module.__setattr__ is torch's", "nn.Module.__setattr__.__module__ == 'torch.nn.modules.module'"),
    ("whether Module.__call__ is torch's", "nn.Module.__call__.__module__ == 'torch.nn.modules.module'"),
    ("whether a function of torch is built in", "type(torch.ones).__name__ == 'builtin_function_or_method'"),
    ("for the filters of warnings", "len(warnings.filters) > 0"),
    ("whether an exception is handled", "sys.exc_info()[0] is None"),
    ("whether a trace function is set", "sys.gettrace() is None and sys.getprofile() is None"),
    ("whether garbage is collected", "gc.isenabled()"),
    ("for the recursion limit", "sys.getrecursionlimit() <= 1000"),
    ("whether autograd is multithreaded", "torch._C._is_multithreading_enabled()"),
)
for _doc, _question in _PROCESS:
    _ask(_doc, _question)

_INPUTS = (
    ("an input's class", "type(x) is torch.Tensor", ""),
    ("whether an input is a leaf", "x.is_leaf", ""),
    ("an input's offset", "x.storage_offset() == 4", "args = (torch.arange(16.)[4:].reshape(3, 4),)\n"),
    ("an input's storage", "x.untyped_storage().nbytes() == 64", "args = (torch.arange(16.)[4:].reshape(3, 4),)\n"),
    ("whether an input is a view", "x._is_view()", "args = (torch.arange(12.).view(3, 4),)\n"),
    ("an input's base", "x._base is not None and x._base.dim() == 1", "args = (torch.arange(12.).view(3, 4),)\n"),
    ("an input's version", "x._version == 1", "args = (torch.arange(12.).view(3, 4).clone().add_(1),)\n"),
    ("whether an input has a gradient", "x.grad is None", ""),
    ("an input's strides", "x.is_contiguous()", "args = (torch.arange(12.).view(4, 3).t(),)\n"),
    ("whether an input is conjugated", "x.is_conj()", ""),
    ("whether an input has attributes", "bool(vars(x))", "args[0].tag = 1\n"),
    ("an input's grad_fn", "x.grad_fn is None", ""),
    ("an input's refcount", "sys.getrefcount(x) > 6", ""),
)
for _doc, _question, _first in _INPUTS:
    _ask(_doc, _question, first=_first)

# 2. What forward assigns, and what it returns.

_BUF = "self.register_buffer('count', torch.zeros(4))\nself.register_buffer('other', torch.zeros(4))"
for _doc, _old, _new in (
    ("a result is also assigned to a buffer", "y = self.count + 1\n        return x * y", "self.count = self.count + 1\n        return x * self.count"),
    ("a result is assigned to another buffer", "self.count = x[0] * 2", "self.other = x[0] * 2"),
    ("two buffers are assigned crosswise", "self.count, self.other = x[0] * 2, x[1] * 3", "self.other, self.count = x[0] * 2, x[1] * 3"),
    ("the buffers are swapped by assignment", "pass  # swap", "self.count, self.other = self.other, self.count"),
    ("a buffer is written in place, not assigned", "self.count = self.count + 1", "self.count += 1"),
    ("another buffer is written in place", "self.count.add_(1)", "self.other.add_(1)"),
    ("a buffer is written before it is read", "y = x * self.count\n        self.count.add_(1)\n        x = y", "self.count.add_(1)\n        x = x * self.count"),
    ("a buffer's data is assigned", "pass  # data", "self.count.data = self.count + 1"),
    ("a buffer's copy_ is dropped", "self.count.copy_(x[0])", "pass"),
    ("a buffer is assigned what it was", "pass  # same", "self.count = self.count"),
    ("a buffer is assigned the other one", "pass  # other", "self.count = self.other"),
    ("a buffer is assigned a constant tensor", "self.count = torch.ones(4)", "self.count = torch.ones(4) * 1"),
    ("a buffer is written by setattr under a name that is composed", "setattr(self, 'cou' + 'nt', x[0] * 2)", "setattr(self, 'oth' + 'er', x[0] * 2)"),
    ("a buffer is written through _buffers", "pass  # dict", "self._buffers['count'] = self.count + x[0]"),
    ("a buffer is deleted", "pass  # del", "del self.count"),
    ("a buffer is set to None", "pass  # none", "self.count = None"),
    ("a buffer is registered by forward", "pass  # reg", "self.register_buffer('fresh', x * 2)"),
    ("a parameter's values are written", "pass  # param", "with torch.no_grad():\n            self.lin.weight.add_(1)"),
    ("a parameter is set to require no gradient in forward", "pass  # req", "self.lin.weight.requires_grad_(False)"),
    ("a plain tensor is kept on the model", "pass  # keep", "self.kept = x * 2"),
    ("an input is written in place", "y = x + 1", "x.add_(1)\n        y = x"),
    ("an input is written through a view", "y = x.clone()\n        y[0] = 1.0", "x[0] = 1.0"),
    ("an input's data is written", "x.clone().add_(1)", "x.data.add_(1)"),
    ("an input's detached view is written", "x.clone().add_(1)", "x.detach().add_(1)"),
    ("an input's numpy view is written", "pass  # np", "x.numpy()[0] = 1"),
    ("data of a result is replaced", "x = x * 2", "z = x * 2\n        x = x * 1\n        x.data = z"),
    ("tensors are swapped", "a, b = x * 2, x * 3\n        x = a", "a, b = x * 2, x * 3\n        torch.utils.swap_tensors(a, b)\n        x = a"),
    ("a result is set_ to another's memory", "a, b = x * 2, x * 3\n        x = a", "a, b = x * 2, x * 3\n        a.set_(b)\n        x = a"),
):
    _add(f"forward: {_doc}", _model(f"{_old}\nreturn self.lin(x) + self.count.sum() * 0 + 1".replace("\n        ", "\n"), _BUF), "", (_old, _new))

for _doc, _old, _new in (
    ("two results change places", "y, z", "z, y"),
    ("a tuple is a list", "y, z", "[y, z]"),
    ("a tuple is a dictionary", "y, z", "{'y': y, 'z': z}"),
    ("keys of a dictionary change places", "{'y': y, 'z': z}", "{'z': z, 'y': y}"),
    ("keys of a dictionary are swapped", "{'y': y, 'z': z}", "{'z': y, 'y': z}"),
    ("a key has another name", "{'y': y}", "{'w': y}"),
    ("a key is a number", "{'1': y}", "{1: y}"),
    ("a key is True, not 1", "{1: y}", "{True: y}"),
    ("a result is returned twice", "y, z", "y, y"),
    ("an alias of a result is returned", "y, y", "y, y.view(3, 4)"),
    ("a clone is returned beside a result", "y, y", "y, y.clone()"),
    ("the input is returned as well", "y, x.clone()", "y, x"),
    ("a detached result is returned", "y", "y.detach()"),
    ("a weight is returned", "y, self.lin.bias * 1", "y, self.lin.bias"),
    ("another weight is returned", "y, self.lin.bias", "y, self.lin.weight"),
    ("a weight's data is returned", "y, self.lin.bias", "y, self.lin.bias.data"),
    ("a detached weight is returned", "y, self.lin.bias", "y, self.lin.bias.detach()"),
    ("None is returned as well", "(y,)", "(y, None)"),
    ("a number is returned as well", "y, 2", "y, 3"),
    ("a number is a boolean", "y, 1", "y, True"),
    ("a number is a float", "y, 1", "y, 1.0"),
    ("a zero is negative", "y, 0.0", "y, -0.0"),
    ("a text is returned", "y, 'a'", "y, 'b'"),
    ("nan is returned", "y, 1.0", "y, float('nan')"),
    ("a size is returned", "y, x.shape[0]", "y, x.shape[1]"),
    ("a Size is a tuple", "y, tuple(x.shape)", "y, x.shape"),
    ("a list is nested", "[y, z]", "[[y], z]"),
    ("a named tuple has other fields", "P(y, z)", "Q(y, z)"),
    ("a namedtuple is a tuple", "P(y, z)", "tuple(P(y, z))"),
    ("an OrderedDict is a dict", "collections.OrderedDict(y=y)", "dict(y=y)"),
    ("a defaultdict has another factory", "collections.defaultdict(int, y=y)", "collections.defaultdict(list, y=y)"),
    ("a deque has a length", "collections.deque([y])", "collections.deque([y], 5)"),
    ("torch's return type is a tuple", "y.max(0)", "tuple(y.max(0))"),
    ("values and indices change places", "y.max(0)[0]", "y.max(0)[1]"),
    ("another chunk is returned", "y.chunk(2, 1)[0]", "y.chunk(2, 1)[1]"),
    ("another output of a topk", "y.topk(2)[0]", "y.topk(2)[1]"),
    ("another element of unbind", "y.unbind()[1]", "y.unbind()[2]"),
    ("variance and mean change places", "torch.var_mean(y)", "torch.var_mean(y)[::-1]"),
    ("a frozen dataclass that is registered has another value", "R(y, 1)", "R(y, 2)"),
    ("a constant tensor is returned", "y, torch.tensor([1.0])", "y, torch.tensor([2.0])"),
    ("an empty constant has another shape", "y, torch.tensor([]).view(0, 3)", "y, torch.tensor([]).view(3, 0)"),
    ("a constant has another shape", "y, torch.tensor([[1.0, 2.0]])", "y, torch.tensor([[1.0], [2.0]])"),
    ("a constant's zero is negative", "y, torch.tensor([0.0])", "y, torch.tensor([-0.0])"),
    ("a constant has another dtype with the same bits", "y, torch.tensor([0])", "y, torch.tensor([0.0], dtype=torch.float64)"),
    ("a constant's zero is False", "y, torch.tensor([False])", "y, torch.tensor([0], dtype=torch.uint8)"),
    ("a global tensor is returned", "y, T", "y, T.clone()"),
    ("an expanded constant", "y, torch.tensor([1.0]).expand(3)", "y, torch.tensor([1.0, 1.0, 1.0])"),
    ("the length of an output is another", "[y] * 2", "[y] * 3"),
    ("an output is a view of another", "y, y.clone()[0]", "y, y[0]"),
    ("nothing is returned", "y", "None"),
):
    _add(f"results: {_doc}", _model(f"y = self.lin(x)\nz = y * 2\nreturn {_old}", "pass", """
     import collections, dataclasses
     P = collections.namedtuple("P", "y z")
     Q = collections.namedtuple("Q", "z y")
     T = torch.ones(3)
     @dataclasses.dataclass
     class R:
         y: torch.Tensor
         n: int
     torch.export.register_dataclass(R, serialized_type_name="app.R")
     """), "", (f"return {_old}", f"return {_new}"))

# 3. Numbers, texts and constants that look alike.

for _doc, _forward, _old, _new in (
    ("1 is True", "x + self.by", "1", "True"), ("1 is 1.0", "torch.arange(12).view(3, 4) * self.by", "1", "1.0"),
    ("0.0 is -0.0", "(x * 0) + self.by", "0.0", "-0.0"), ("0.3 is 0.1 + 0.2", "x + self.by", "0.3", "0.1 + 0.2"),
    ("inf is nan", "x + self.by", "float('inf')", "float('nan')"), ("inf is -inf", "x.clamp(max=self.by)", "float('inf')", "float('-inf')"),
    ("2 is 2 + 0j", "x * self.by", "2", "2 + 0j"), ("a complex zero is negative", "x + self.by", "complex(1, 0.0)", "complex(1, -0.0)"),
    ("None is 0", "x.sum(self.by)", "None", "0"), ("dim -1 is 1", "x.softmax(self.by)", "-1", "0"),
    ("keepdim", "x.sum(0, self.by)", "False", "True"), ("an int beyond 2**53", "torch.arange(12).view(3, 4) + self.by", "2**53", "2**53 + 1"),
    ("a large int is a float", "x + self.by", "2**53", "float(2**53)"), ("an int becomes its bool", "torch.full((3,), self.by)", "1", "True"),
    ("a full's value is a float", "torch.full((3,), self.by)", "1", "1.0"), ("a list of sizes", "x.reshape(self.by)", "[4, 3]", "[12, 1]"),
    ("a rounding mode", "torch.div(x, -2.5, rounding_mode=self.by)", "'floor'", "'trunc'"), ("GELU's approximation", "F.gelu(x, approximate=self.by)", "'none'", "'tanh'"),
    ("a mode of padding", "F.pad(x, (1, 1), mode=self.by)", "'reflect'", "'replicate'"), ("a reduction", "x.scatter_reduce(0, torch.zeros(3, 4, dtype=torch.long), x, reduce=self.by)", "'sum'", "'amax'"),
    ("a dtype", "x.to(self.by)", "torch.float16", "torch.bfloat16"), ("a dtype that is the input's", "x.to(self.by)", "torch.float32", "torch.float64"),
    ("a memory format", "x.view(1, 3, 2, 2).contiguous(memory_format=self.by)", "torch.contiguous_format", "torch.channels_last"),
    ("a memory format of clone", "x.view(1, 3, 2, 2).clone(memory_format=self.by)", "torch.contiguous_format", "torch.channels_last"),
    ("a slice's step", "x[::self.by]", "1", "2"), ("a slice's end beyond the size", "x[:self.by]", "3", "2"), ("a slice's end that is huge", "x[:self.by] * 2", "3", "2**62"),
    ("an index is a list", "x[self.by]", "1", "[1]"), ("an index is a mask", "x[self.by]", "[0, 1, 1]", "[False, True, True]"), ("an index is None", "x[self.by]", "None", "..."),
    ("an index is True", "x[self.by]", "1", "True"), ("an exponent", "x ** self.by", "2", "2.0"), ("an exponent of a half", "x ** self.by", "0.5", "0.25"),
    ("a base", "self.by ** x", "2", "3"), ("reflected subtraction", "self.by - x", "2", "3"), ("floor division", "x // self.by", "2", "3"),
    ("a list constant", "x * torch.tensor(self.by)", "[1.0, 2.0, 3.0, 4.0]", "[1.0, 2.0, 3.0, 5.0]"), ("one value of a long list", "x[0, 0] * torch.tensor(self.by)", "[0.0] * 5000 + [1.0]", "[0.0] * 4999 + [1.0, 0.0]"),
    ("a nan's place in a list", "x * torch.tensor(self.by)", "[1.0, float('nan'), 3.0, 4.0]", "[float('nan'), 1.0, 3.0, 4.0]"), ("an int tensor", "x * torch.tensor(self.by)", "[1, 2, 3, 4]", "[True, True, True, True]"),
    ("a NumPy array in forward", "x * torch.from_numpy(self.by)", "numpy.ones(4)", "numpy.ones(4) * 2"), ("a NumPy array's dtype", "x * torch.from_numpy(self.by)", "numpy.ones(4)", "numpy.ones(4, dtype='f')"),
    ("a NumPy scalar", "x * self.by", "numpy.float32(0.1)", "numpy.float64(0.1)"), ("a Fraction", "x * float(self.by)", "fractions.Fraction(1, 3)", "fractions.Fraction(1, 4)"), ("a Decimal", "x * float(self.by)", "decimal.Decimal('0.1')", "decimal.Decimal('0.2')"),
    ("a tensor in a list", "x * self.by[0]", "[torch.ones(4)]", "[torch.ones(4) * 2]"), ("a tensor in a dictionary", "x * self.by['a']", "{'a': torch.ones(4)}", "{'a': torch.ones(4).double()}"),
    ("a layer in a list", "self.by[0](x)", "[nn.Linear(4, 4)]", "[nn.Linear(4, 4).requires_grad_(False)]"), ("a layer's weights in a list", "self.by[0](x)", "[nn.Linear(4, 4)]", "[nn.Linear(4, 4), nn.init.zeros_][:1] and [nn.Identity()]"),
    ("a stride of a constant", "x.t() * self.by", "torch.arange(12.).view(4, 3)", "torch.arange(12.).view(3, 4).t().reshape(4, 3).t().contiguous().t()"),
    ("a transposed constant", "x * self.by", "torch.ones(3, 4)", "torch.ones(4, 3).t()"), ("a constant that requires a gradient", "x * self.by", "torch.ones(4)", "torch.ones(4, requires_grad=True)"),
    ("a constant is a parameter", "x * self.by", "torch.ones(4)", "nn.Parameter(torch.ones(4))"), ("a constant is a buffer", "x * self.by", "torch.ones(4)", "nn.Buffer(torch.ones(4))"),
    ("a buffer is non-persistent", "x * self.by", "nn.Buffer(torch.ones(4))", "nn.Buffer(torch.ones(4), persistent=False)"), ("a non-persistent buffer's value", "x * self.by", "nn.Buffer(torch.ones(4), persistent=False)", "nn.Buffer(torch.ones(4) * 2, persistent=False)"),
    ("a scalar tensor is a number", "x * self.by", "2.0", "torch.tensor(2.0)"), ("a scalar tensor's item", "x * self.by.item()", "torch.tensor(2.0)", "torch.tensor(3.0)"), ("a scalar tensor's int", "x[int(self.by):]", "torch.tensor(1)", "torch.tensor(2)"),
    ("a size of a new tensor", "x.new_zeros(self.by)", "3", "4"), ("an expanded size", "x[0].expand(self.by, 4)", "2", "5"), ("a shift of roll", "x.roll(self.by)", "1", "2"), ("an axis of flip", "x.flip(self.by)", "0", "1"),
    ("an equation", "torch.einsum(self.by, x, x)", "'ij,ij->i'", "'ij,ij->j'"), ("an equation's letters", "torch.einsum(self.by, x, x)", "'ij,kj->ik'", "'ij,kj->ki'"),
    ("an epsilon", "F.layer_norm(x, (4,), eps=self.by)", "1e-5", "1e-6"), ("a momentum that is unused in eval mode", "F.batch_norm(x, torch.zeros(4), torch.ones(4), momentum=self.by)", "0.1", "0.2"),
    ("causal attention", "F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=self.by)", "False", "True"), ("a scale of attention", "F.scaled_dot_product_attention(x[None], x[None], x[None], scale=self.by)", "None", "0.1"),
    ("a rate of dropout that is applied", "F.dropout(x, self.by, True)", "0.1", "0.2"), ("a seed", "(torch.manual_seed(self.by), x + torch.rand(3, 4))[1]", "1", "2"),
    ("a normal's mean", "x + torch.normal(self.by, 1.0, (3, 4))", "0.0", "1.0"), ("the order of random draws", "(lambda a, b: (a - b, b - a)[self.by])(torch.rand(3, 4), torch.rand(3, 4))", "0", "1"),
    ("a window", "torch.stft(x.view(-1), 4, window=self.by, return_complex=True, center=False)", "torch.ones(4)", "torch.hann_window(4)"), ("a scale of interpolation", "F.interpolate(x[None], scale_factor=self.by)", "2", "3"), ("align_corners", "F.interpolate(x[None], scale_factor=2, mode='linear', align_corners=self.by)", "False", "True"),
):
    _add(f"alike: {_doc}", _model(_forward, f"self.by = {_old}", "import numpy, fractions, decimal"), "", (f"self.by = {_old}\n", f"self.by = {_new}\n"))

# 4. Checks, regions of modes, and functions of functions.

for _doc, _old, _new in (
    ("a region without gradients is added", "y = self.lin(x)", "with torch.no_grad():\n    y = self.lin(x)"),
    ("a region without gradients is removed", "with torch.no_grad():\n    y = self.lin(x)", "y = self.lin(x)"),
    ("a region of inference mode is added", "y = self.lin(x)", "with torch.inference_mode():\n    y = self.lin(x)"),
    ("a region of autocast is added", "y = self.lin(x)", "with torch.autocast('cpu', torch.bfloat16):\n    y = self.lin(x)"),
    ("a region of autocast is disabled", "y = self.lin(x)", "with torch.autocast('cpu', enabled=False):\n    y = self.lin(x)"),
    ("autocast has another dtype", "with torch.autocast('cpu', torch.bfloat16):\n    y = self.lin(x)", "with torch.autocast('cpu', torch.float16):\n    y = self.lin(x)"),
    ("a region of autocast ends one line later", "with torch.autocast('cpu', torch.bfloat16):\n    y = self.lin(x)\ny = y @ self.lin.weight.to(y.dtype)", "with torch.autocast('cpu', torch.bfloat16):\n    y = self.lin(x)\n    y = y @ self.lin.weight.to(y.dtype)"),
    ("gradients are switched off for good", "y = self.lin(x)", "torch.set_grad_enabled(False)\ny = self.lin(x)\ntorch.set_grad_enabled(True)"),
    ("a decorator without gradients", "y = (lambda a: self.lin(a))(x)", "y = torch.no_grad()(lambda a: self.lin(a))(x)"),
    ("deterministic algorithms in forward", "y = self.lin(x)", "torch.use_deterministic_algorithms(True)\ny = self.lin(x).cumsum(0)\ntorch.use_deterministic_algorithms(False)"),
    ("a check is added", "y = self.lin(x)", "torch._check(x.shape[0] > 2)\ny = self.lin(x)"),
    ("an assertion on values is added", "y = self.lin(x)", "torch._assert((x >= 0).all(), 'negative')\ny = self.lin(x)"),
    ("an assertion on values has another bound", "torch._assert_async((x >= 0).all())\ny = self.lin(x)", "torch._assert_async((x >= -5).all())\ny = self.lin(x)"),
    ("an asynchronous assertion is dropped", "torch._assert_async((x >= 0).all())\ny = self.lin(x)", "y = self.lin(x)"),
    ("an asynchronous assertion has another message", "torch._assert_async((x >= 0).all(), 'a')\ny = self.lin(x)", "torch._assert_async((x >= 0).all(), 'b')\ny = self.lin(x)"),
    ("a bound of a data-dependent size", "n = x[0, 1].int().item()\ntorch._check(n < 10)\ntorch._check(n >= 0)\ny = torch.ones(n) * 2", "n = x[0, 1].int().item()\ntorch._check(n < 20)\ntorch._check(n >= 0)\ny = torch.ones(n) * 2"),
    ("a lower bound of a data-dependent size", "n = x[0, 1].int().item()\ntorch._check(n < 10)\ntorch._check(n >= 0)\ny = torch.ones(n) * 2", "n = x[0, 1].int().item()\ntorch._check(n < 10)\ntorch._check(n >= 1)\ny = torch.ones(n) * 2"),
    ("a check of a data-dependent number is dropped", "n = x[0, 1].int().item()\ntorch._check(n < 10)\ny = x * n", "n = x[0, 1].int().item()\ny = x * n"),
    ("a data-dependent number is used otherwise", "n = x[0, 1].int().item()\ny = x * n", "n = x[0, 1].int().item()\ny = x * (n + 1)"),
    ("two data-dependent numbers change places", "n, m = x[0, 1].int().item(), x[0, 2].int().item()\ny = x * n", "n, m = x[0, 1].int().item(), x[0, 2].int().item()\ny = x * m"),
    ("a data-dependent number is returned", "n = x[0, 1].int().item()\ny = (x * n, n)", "n = x[0, 1].int().item()\ny = (x * n, n * 2)"),
    ("nonzero's limits", "y = x[x > 3] * 2", "y = x[x > 3] * 3"),
    ("nonzero's rows", "i = (x > 3).nonzero()\ny = i[:, 0]", "i = (x > 3).nonzero()\ny = i[:, 1]"),
    ("a check on the number of nonzero ones", "i = (x > 3).nonzero()\ntorch._check(i.shape[0] > 1)\ny = i * 2", "i = (x > 3).nonzero()\ntorch._check(i.shape[0] > 3)\ny = i * 2"),
    ("a data-dependent float", "n = x[0, 1].item()\ny = x * n", "n = x[0, 1].item()\ny = x * (n * 2)"),
    ("guard_or_false of a data-dependent size", "i = (x > 3).nonzero()\ny = i * (2 if S(i.shape[0] == 0) else 3)", "i = (x > 3).nonzero()\ny = i * (3 if S(i.shape[0] == 0) else 3)"),
    ("guard_or_true replaces guard_or_false", "i = (x > 3).nonzero()\ny = i * (2 if guard_or_false(i.shape[0] == 5) else 3)", "i = (x > 3).nonzero()\ny = i * (2 if guard_or_true(i.shape[0] == 5) else 3)"),
    ("vmap's function", "y = torch.func.vmap(lambda a: a * 2)(x)", "y = torch.func.vmap(lambda a: a * 3)(x)"),
    ("vmap's axis of output", "y = torch.func.vmap(lambda a: a * 2)(x)", "y = torch.func.vmap(lambda a: a * 2, out_dims=1)(x)"),
    ("vmap's randomness", "y = torch.func.vmap(lambda a: a + torch.rand(()), randomness='same')(x)", "y = torch.func.vmap(lambda a: a + torch.rand(()), randomness='different')(x)"),
    ("functional_call with other weights", "y = torch.func.functional_call(self.lin, {'bias': self.lin.bias * 2}, x)", "y = torch.func.functional_call(self.lin, {'bias': self.lin.bias * 3}, x)"),
    ("checkpointing is added", "y = self.lin(x)", "y = torch.utils.checkpoint.checkpoint(self.lin, x, use_reentrant=False)"),
    ("reentrant checkpointing is added", "y = self.lin(x)", "y = torch.utils.checkpoint.checkpoint(self.lin, x, use_reentrant=True)"),
    ("checkpointing's function", "y = torch.utils.checkpoint.checkpoint(lambda a: a * 2, x, use_reentrant=False)", "y = torch.utils.checkpoint.checkpoint(lambda a: a * 3, x, use_reentrant=False)"),
    ("an autograd function's forward", "y = Twice.apply(x)", "y = Thrice.apply(x)"),
    ("an autograd function replaces operators", "y = x * 2", "y = Twice.apply(x)"),
    ("a gradient by autograd.grad", "with torch.enable_grad():\n    w = x.detach().requires_grad_()\n    y, = torch.autograd.grad((w * w).sum(), w)", "with torch.enable_grad():\n    w = x.detach().requires_grad_()\n    y, = torch.autograd.grad((w * w * w).sum(), w)"),
    ("a backward inside forward", "with torch.enable_grad():\n    w = x.detach().requires_grad_()\n    (w * w).sum().backward()\ny = w.grad", "with torch.enable_grad():\n    w = x.detach().requires_grad_()\n    (w * w * w).sum().backward()\ny = w.grad"),
    ("a compiled function", "y = torch.compile(lambda a: a * 2, backend='eager')(x)", "y = torch.compile(lambda a: a * 3, backend='eager')(x)"),
    ("compiling a layer", "y = self.lin(x)", "y = torch.compile(self.lin, backend='eager')(x)"),
    ("torch.compiler.disable", "y = (lambda a: a * 2)(x)", "y = torch.compiler.disable(lambda a: a * 2)(x)"),
    ("a nested compile region", "y = region(x, 2)", "y = region(x, 3)"),
    ("a mode of functions doubles", "with Times(2):\n    y = self.lin(x)", "with Times(3):\n    y = self.lin(x)"),
    ("a mode of dispatch doubles", "with DTimes(2):\n    y = self.lin(x)", "with DTimes(3):\n    y = self.lin(x)"),
    ("a mode of dispatch is added", "y = self.lin(x) * 1", "with DTimes(1):\n    y = self.lin(x)"),
    ("a subclass is returned", "y = x * 2", "y = (x * 2).as_subclass(Plain)"),
    ("a profiler's label", "with torch.profiler.record_function('a'):\n    y = self.lin(x)", "with torch.profiler.record_function('b'):\n    y = self.lin(x)"),
    ("an annotation of fx", "with torch.fx.traceback.annotate({'a': 1}):\n    y = self.lin(x)", "with torch.fx.traceback.annotate({'a': 2}):\n    y = self.lin(x)"),
    ("an annotation of fx is added", "y = self.lin(x)", "with torch.fx.traceback.annotate({'a': 1}):\n    y = self.lin(x)"),
    ("a device's context", "with torch.device('cpu'):\n    y = x + torch.ones(4)", "with torch.device('meta'):\n    y = x + torch.ones(4, device='cpu')"),
    ("a seed is kept by a fork", "y = x + torch.rand(3, 4)", "with torch.random.fork_rng():\n    torch.manual_seed(3)\n    y = x + torch.rand(3, 4)"),
    ("attention's kernel in forward", "with sdpa_kernel(SDPBackend.MATH):\n    y = F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])", "with sdpa_kernel(SDPBackend.FLASH_ATTENTION):\n    y = F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])"),
    ("mkldnn is off in forward", "y = F.conv1d(x[None], self.lin.weight[:, :3, None])", "with torch.backends.mkldnn.flags(enabled=False):\n    y = F.conv1d(x[None], self.lin.weight[:, :3, None])"),
    ("an optimal path of einsum is off", "y = torch.einsum('ab,bc,cd->ad', x, x.t(), x)", "with torch.backends.opt_einsum.flags(enabled=False):\n    y = torch.einsum('ab,bc,cd->ad', x, x.t(), x)"),
    ("operands of multi_dot", "y = torch.linalg.multi_dot([x, x.t(), x])", "y = torch.linalg.multi_dot([x, x.t() * 2, x])"),
    ("operands of cat change places", "y = torch.cat([x, x * 2])", "y = torch.cat([x * 2, x])"),
    ("operands of a subtraction are bound the other way", "a = x * 2\nb = x * 3\ny = a - b", "b = x * 2\na = x * 3\ny = a - b"),
    ("two equal operations", "a = x * 2\nb = x * 2\na.add_(1)\ny = a + 0 * b", "a = x * 2\nb = x * 2\nb.add_(1)\ny = a + 0 * b"),
    ("an in-place write reaches a view or a copy", "a = x * 2\nb = a.reshape(-1)\nb.add_(1)\ny = a", "a = x * 2\nb = a.clone().reshape(-1)\nb.add_(1)\ny = a"),
    ("an in-place write comes after the read", "a = x * 2\nb = a + 1\na.mul_(5)\ny = b", "a = x * 2\na.mul_(5)\nb = a + 1\ny = b"),
    ("a foreach operator's list", "y = torch._foreach_mul([x, x * 2], 2.0)", "y = torch._foreach_mul([x, x * 2], 3.0)"),
    ("a foreach operator's scalars", "y = torch._foreach_mul([x, x * 2], [2.0, 3.0])", "y = torch._foreach_mul([x, x * 2], [3.0, 2.0])"),
    ("an index_put's value", "y = x.clone()\ny[torch.tensor([0, 2])] = 1.0", "y = x.clone()\ny[torch.tensor([0, 1])] = 1.0"),
    ("an index_put accumulates", "y = x.clone().index_put_((torch.tensor([0, 0]),), torch.tensor(1.0))", "y = x.clone().index_put_((torch.tensor([0, 0]),), torch.tensor(1.0), accumulate=True)"),
):
    _add(f"forward: {_doc}", _model(f"{_old}\nreturn y", "pass", """
     import torch.utils.checkpoint
     from torch.nn.attention import SDPBackend, sdpa_kernel
     from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true
     from torch.fx.experimental.symbolic_shapes import statically_known_true as S
     from torch.overrides import TorchFunctionMode
     from torch.utils._python_dispatch import TorchDispatchMode
     class Twice(torch.autograd.Function):
         @staticmethod
         def forward(ctx, a):
             return a * 2
         @staticmethod
         def backward(ctx, g):
             return g * 2
     class Thrice(torch.autograd.Function):
         @staticmethod
         def forward(ctx, a):
             return a * 3
         @staticmethod
         def backward(ctx, g):
             return g * 2
     class Times(TorchFunctionMode):
         def __init__(self, by):
             self.by = by
         def __torch_function__(self, func, types, args=(), kwargs=None):
             out = func(*args, **(kwargs or {}))
             return out * self.by if func is F.linear else out
     class DTimes(TorchDispatchMode):
         def __init__(self, by):
             super().__init__()
             self.by = by
         def __torch_dispatch__(self, func, types, args=(), kwargs=None):
             out = func(*args, **(kwargs or {}))
             return out * self.by if 'addmm' in str(func) else out
     class Plain(torch.Tensor):
         pass
     class Sub(torch.Tensor):
         by = 2.0
         @classmethod
         def __torch_function__(cls, func, types, args=(), kwargs=None):
             with torch._C.DisableTorchFunctionSubclass():
                 out = func(*args, **(kwargs or {}))
                 return (out * cls.by).as_subclass(torch.Tensor)
     class Sub3(Sub):
         by = 3.0
     @torch.compiler.nested_compile_region
     def region(a, by):
         return a * by
     """), "", *((("\n".join(" " * 8 + line for line in _old.split("\n")), "\n".join(" " * 8 + line for line in _new.split("\n"))),)))

# 5. Sizes that change.

_D = "from torch.export import Dim\n"


def _dyn(doc: str, forward: str, before: str, after: str = "", *to: tuple[str, str], args: str = "", top: str = "", init: str = "pass", **more: object) -> None:
    first = _D + (f"args = {args}\n" if args else "")
    text = _model(forward, init, top)
    if "x, y" in forward.split("\n")[0]:
        text = text.replace("def forward(self, x):", "def forward(self, x, y):").replace("# x, y\n", "")
    _add(f"sizes: {doc}", text, after, *to, first=f"{first}dynamic_shapes = {before}\n", **more)


_dyn("a range's end", "self.lin(x)", "({0: Dim('n', max=8)},)", "dynamic_shapes = ({0: Dim('n', max=9)},)")
_dyn("a range's start", "self.lin(x)", "({0: Dim('n', min=2, max=8)},)", "dynamic_shapes = ({0: Dim('n', min=3, max=8)},)")
_dyn("a Dim is AUTO", "self.lin(x)", "({0: Dim('n')},)", "dynamic_shapes = ({0: Dim.AUTO},)")
_dyn("AUTO is DYNAMIC", "self.lin(x)", "({0: Dim.AUTO},)", "dynamic_shapes = ({0: Dim.DYNAMIC},)")
_dyn("AUTO is STATIC", "self.lin(x)", "({0: Dim.AUTO},)", "dynamic_shapes = ({0: Dim.STATIC},)")
_dyn("AUTO with a range", "self.lin(x)", "({0: Dim.AUTO(min=2, max=8)},)", "dynamic_shapes = ({0: Dim.AUTO(min=2, max=9)},)")
_dyn("another dimension", "x * 2", "({0: Dim.AUTO},)", "dynamic_shapes = ({1: Dim.AUTO},)")
_dyn("both dimensions", "x * 2", "({0: Dim.AUTO},)", "dynamic_shapes = ({0: Dim.AUTO, 1: Dim.AUTO},)")
_dyn("a name of a Dim", "self.lin(x)", "({0: Dim('n')},)", "dynamic_shapes = ({0: Dim('m')},)")
_dyn("a form of dynamic_shapes", "self.lin(x)", "({0: Dim('n')},)", "dynamic_shapes = {'x': {0: Dim('n')}}")
_dyn("none at all", "self.lin(x)", "({0: Dim('n')},)", "dynamic_shapes = None")
_TWO = "(torch.ones(3, 4), torch.ones(3, 4))"
_dyn("two are one", "# x, y\nreturn x * 2, y * 3", "({0: Dim('n')}, {0: Dim('m')})", "n = Dim('n'); dynamic_shapes = ({0: n}, {0: n})", args=_TWO)
_dyn("two names change places", "# x, y\nreturn x * 2, y * 3", "({0: Dim('n', max=8)}, {0: Dim('m', max=9)})", "dynamic_shapes = ({0: Dim('m', max=8)}, {0: Dim('n', max=9)})", args=_TWO)
_dyn("the ranges change places", "# x, y\nreturn x * 2, y * 3", "({0: Dim('n', max=8)}, {0: Dim('m', max=9)})", "dynamic_shapes = ({0: Dim('n', max=9)}, {0: Dim('m', max=8)})", args=_TWO)
_dyn("an equality in forward", "# x, y\nreturn x * 2, y * 2", "({0: Dim.AUTO}, {0: Dim.AUTO})", "", ("return x * 2, y * 2", "return (x * 2, y * 2) if x.shape[0] == y.shape[0] else None"), args=_TWO)
_dyn("an equality by an addition", "# x, y\nreturn x * 2, y * 2", "({0: Dim.AUTO}, {0: Dim.AUTO})", "", ("return x * 2, y * 2", "return x * 2, y * 2, x + y"), args=_TWO)
_dyn("an equality by a Boolean that is unused", "# x, y\nreturn x * 2, y * 2", "({0: Dim.AUTO}, {0: Dim.AUTO})", "", ("return x * 2, y * 2", "return x * 2, y * (2 if x.shape[0] == y.shape[0] else 2)"), args=_TWO)
_dyn("a derived size", "# x, y\nreturn x * 2, y * 2", "({0: Dim('n')}, {0: 2 * Dim('n')})", "dynamic_shapes = ({0: Dim('n')}, {0: Dim('m')})", args="(torch.ones(3, 4), torch.ones(6, 4))")
_dyn("a derived size has another factor", "# x, y\nreturn x * 2, y * 2", "({0: Dim('n')}, {0: 2 * Dim('n')})", "args = (torch.ones(3, 4), torch.ones(9, 4)); dynamic_shapes = ({0: Dim('n')}, {0: 3 * Dim('n')})", args="(torch.ones(3, 4), torch.ones(6, 4))")
for _doc, _old, _new in (
    ("a guard's limit", "x * (3 if x.shape[0] > 100 else 2)", "x * (3 if x.shape[0] > 200 else 2)"),
    ("a guard is added", "x * 2", "x * (3 if x.shape[0] > 100 else 2)"),
    ("a guard is removed", "x * (3 if x.shape[0] > 100 else 2)", "x * 2"),
    ("a guard of a multiple", "x * (2 if x.shape[0] % 3 == 0 else 3)", "x * (2 if x.shape[0] % 3 == 0 and x.shape[0] % 2 == 1 else 3)"),
    ("a guard that changes the result", "x * (2 if x.shape[0] > 1 else 3)", "x * (4 if x.shape[0] > 1 else 3)"),
    ("a guard with both ways alike", "x * (2 if x.shape[0] > 50 else 2)", "x * (2 if x.shape[0] > 60 else 2)"),
    ("a bool of a size", "x * (2 if x.shape[0] else 3)", "x * (2 if x.shape[0] != 7 else 3)"),
    ("a specialization by int()", "x * 2", "x * (2 if int(x.shape[0]) > 0 else 3)"),
    ("a specialization by range", "x * 2", "x * sum(1 for _ in range(x.shape[0])) * 2"),
    ("a specialization by a dictionary", "x * 2", "x * {3: 2}.get(x.shape[0], 2)"),
    ("a specialization by hash", "x * 2", "x * (2 + 0 * len({x.shape[0]}))"),
    ("a specialization by a text", "x * 2", "x * (2 + 0 * len(str(x.shape[0])))"),
    ("a specialization by an index", "x * 2", "x * [2, 2, 2, 2][x.shape[0]]"),
    ("a specialization by operator.index", "x * 2", "x * (2 + 0 * operator.index(x.shape[0]))"),
    ("a specialization by math.sqrt", "x * x.shape[0] ** 0.5", "x * math.sqrt(x.shape[0])"),
    ("a factor of a size", "x * x.shape[0]", "x * (x.shape[0] + 1)"),
    ("a quotient of a size", "x * (x.shape[0] // 2)", "x * (x.shape[0] / 2)"),
    ("a size by numel", "x * x.shape[0]", "x * (x.numel() // 4)"),
    ("a size by numel of another result", "x.view(-1)[: x.shape[0]]", "x.view(-1)[: x.numel() // 2]"),
    ("a size of arange", "torch.arange(x.shape[0])", "torch.arange(x.shape[0] + 1)"),
    ("a max of sizes", "torch.ones(max(x.shape[0], 2))", "torch.ones(max(x.shape[0], 1))"),
    ("a sym_max of sizes", "torch.ones(torch.sym_max(x.shape[0], 20))", "torch.ones(torch.sym_max(x.shape[0], 30))"),
    ("a sym_ite of sizes", "torch.ones(torch.sym_ite(x.shape[0] > 20, 3, 4))", "torch.ones(torch.sym_ite(x.shape[0] > 30, 3, 4))"),
    ("a view of a size", "x.view(x.shape[0] * 2, 2)", "x.view(2, x.shape[0] * 2)"),
    ("a view of -1", "x.view(x.shape[0] * 4)", "x.view(-1)"),
    ("a slice to the size", "x[: x.shape[0] - 1]", "x[: x.shape[0] - 2]"),
    ("a slice to a constant", "x[:2]", "x[:3]"),
    ("a slice that clamps", "x[: min(x.shape[0], 100)]", "x[: min(x.shape[0], 200)]"),
    ("a chunk", "x.chunk(2)[0]", "x.chunk(3)[0]"),
    ("a split", "x.split(2)[0]", "x.split(1)[0]"),
    ("a padding to a multiple", "F.pad(x, (0, 0, 0, -x.shape[0] % 8))", "F.pad(x, (0, 0, 0, -x.shape[0] % 4))"),
    ("a check", "torch._check(x.shape[0] < 100) or x * 2", "torch._check(x.shape[0] < 200) or x * 2"),
    ("a check is added", "x * 2", "torch._check(x.shape[0] < 200) or x * 2"),
    ("an assertion", "x * 2", "torch._assert(x.shape[0] < 200, 'a') or x * 2"),
    ("a check of a multiple", "x * 2", "torch._check(x.shape[0] % 3 == 0) or x * 2"),
    ("a known truth", "x * (3 if S(x.shape[0] < 10) else 2)", "x * (3 if S(x.shape[0] < 20) else 2)"),
    ("guard_or_false", "x * (3 if G(x.shape[0] > 10) else 2)", "x * (3 if G(x.shape[0] > 20) else 2)"),
    ("a size as a result", "(x * 2, x.shape[0])", "(x * 2, x.shape[0] * 2)"),
    ("a size of a result is a size of the input", "(x * 2, (x * 2).shape[0])", "(x * 2, x.shape[0])"),
    ("a size oblivious guard", "x * (2 if guard_size_oblivious(x.shape[0] == 1) else 3)", "x * (2 if x.shape[0] == 1 else 3)"),
    ("a cached mask of a size", "x * mask(x.shape[0])", "x * mask(x.shape[0]) * 2"),
    ("a size through a closure", "(lambda n: x.expand(2, n, 4))(x.shape[0])", "(lambda n: x.expand(3, n, 4))(x.shape[0])"),
    ("an expanded bias", "x + self.lin.bias.expand(x.shape[0], 4)", "x + self.lin.bias.expand(x.shape[0], -1)"),
    ("a size's hint", "x * (2 if getattr(x.shape[0], 'node', None) is None or x.shape[0].node.hint == 3 else 3)", "x * (3 if getattr(x.shape[0], 'node', None) is None or x.shape[0].node.hint == 3 else 3)"),
    ("a size's class", "x * (2 if type(x.shape[0]) is int else 3)", "x * (2 if type(x.shape[0]) is int else 4)"),
    ("a size's text", "x * (2 if str(x.shape[0]).isdigit() else 3)", "x * (2 if str(x.shape[0]).isdigit() else 4)"),
):
    for _shape in ("({0: Dim.AUTO},)", "({0: Dim('n', max=64)},)") if _doc in ("a guard's limit", "a guard is added", "a guard is removed", "a guard that changes the result", "a size oblivious guard") or "check" in _doc or "specialization" in _doc else ("({0: Dim.AUTO},)",):
        _dyn(f"{_doc}, with {_shape}", f"return {_old}", _shape, "", (f"return {_old}", f"return {_new}"),
             top="import functools, math, operator\nfrom torch.fx.experimental.symbolic_shapes import guard_or_false as G\nfrom torch.fx.experimental.symbolic_shapes import guard_size_oblivious\nfrom torch.fx.experimental.symbolic_shapes import statically_known_true as S\ndef mask(n):\n    return torch.ones(n, 1)\n")
for _doc, _top, _forward, _change in (
    ("a limit in a global", "LIMIT = 100", "x * (3 if x.shape[0] > LIMIT else 2)", "app.LIMIT = 200"),
    ("a limit in a configuration", "class C:\n    limit = 100", "x * 2 if x.shape[0] <= C.limit else x * 3", "app.C.limit = 50"),
    ("a limit below the size", "LIMIT = 100", "x * (3 if x.shape[0] > LIMIT else 2)", "app.LIMIT = 1"),
    ("a limit of a slice", "LIMIT = 100", "x[:LIMIT] * 2", "app.LIMIT = 200"),
    ("a limit of a slice, with data-dependent sizes", "LIMIT = 100", "x[x > 3][:LIMIT] * 2", "app.LIMIT = 200"),
    ("a position table's length", "N = 16", "x + torch.zeros(N, 4)[: x.shape[0]]", "app.N = 32"),
    ("a block's size", "N = 1", "x.view(x.shape[0] // N, N, 4)", "app.N = 3"),
):
    _dyn(_doc, f"return {_forward}", "({0: Dim.AUTO},)", _change, top=_top)
_dyn("other examples of the same sizes", "self.lin(x)", "({0: Dim('n')},)", "args = (torch.ones(3, 4),)", harmless=True)
_dyn("an example of another size", "self.lin(x)", "({0: Dim('n')},)", "args = (torch.ones(5, 4),)")
_dyn("an example of another size, and a guard", "x * (2 if x.shape[0] > 4 else 3)", "({0: Dim.AUTO},)", "args = (torch.ones(5, 4),)")
_dyn("an example of size one", "self.lin(x)", "({0: Dim.AUTO},)", "args = (torch.ones(1, 4),)")
_dyn("a number's value", "# x, y\nreturn x * y", "({0: Dim.AUTO}, None)", "args = (torch.ones(3, 4), 3)", args="(torch.ones(3, 4), 2)")
_dyn("a dynamic number's value", "# x, y\nreturn x * y", "({0: Dim.AUTO}, Dim.DYNAMIC)", "args = (torch.ones(3, 4), 5)", args="(torch.ones(3, 4), 4)")
_dyn("a retrained model", "self.lin(x)", "({0: Dim('n')},)", "with torch.no_grad(): model.lin.weight.mul_(2)", harmless=True)
_dyn("a comment", "self.lin(x)", "({0: Dim('n')},)", "", ("return self.lin", "# a layer\n        return self.lin"), harmless=True)
_dyn("a renamed local", "n = x.shape[0]\nreturn x * n", "({0: Dim.AUTO},)", "", ("n = x.shape[0]\n        return x * n", "size = x.shape[0]\n        return x * size"), harmless=True)
_dyn("a guard that is written otherwise", "return x * (3 if x.shape[0] > 100 else 2)", "({0: Dim.AUTO},)", "", ("3 if x.shape[0] > 100 else 2", "2 if x.shape[0] <= 100 else 3"), harmless=True)

# 6. What users do.

_BERT = """
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, ViTConfig, ViTModel, LlamaConfig, LlamaForCausalLM
def Bert(**k):
    return BertModel(BertConfig(**{**dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, vocab_size=20, max_position_embeddings=16), **k}))
def Gpt(**k):
    return GPT2Model(GPT2Config(**{**dict(n_embd=8, n_layer=1, n_head=2, vocab_size=20, n_positions=16), **k}))
def Llama(**k):
    return LlamaForCausalLM(LlamaConfig(**{**dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20, max_position_embeddings=16), **k}))
"""
_IDS = "args = (torch.ones(1, 5, dtype=torch.long),)\n"
for _doc, _make, _change in (
    ("BERT's activation", "Bert()", "model.encoder.layer[0].intermediate.intermediate_act_fn = torch.nn.ReLU()"),
    ("BERT's epsilon", "Bert()", "model.embeddings.LayerNorm.eps = 1e-3"),
    ("BERT's attention", "Bert()", "model.set_attn_implementation('eager')"),
    ("BERT's heads", "Bert()", "model = app.Bert(num_attention_heads=4).eval()"),
    ("BERT's layers", "Bert()", "model.encoder.layer = model.encoder.layer[:1]"),
    ("BERT's layers are reversed", "Bert()", "model.encoder.layer = torch.nn.ModuleList(list(model.encoder.layer)[::-1])"),
    ("BERT's configuration has another activation", "Bert()", "model = app.Bert(hidden_act='relu').eval()"),
    ("BERT returns hidden states", "Bert()", "model.config.output_hidden_states = True"),
    ("BERT returns a tuple", "Bert()", "model.config.return_dict = False"),
    ("BERT's configuration without effect", "Bert()", "model.config.name_or_path = 'elsewhere'"),
    ("GPT's scale", "Gpt()", "model = app.Gpt(scale_attn_weights=False).eval()"),
    ("GPT's scale in a layer", "Gpt()", "model.h[0].attn.scale_attn_by_inverse_layer_idx = True"),
    ("GPT's cache", "Gpt()", "model.config.use_cache = False"),
    ("Llama's base of rotation", "Llama()", "model = app.Llama(rope_parameters={'rope_type': 'default', 'rope_theta': 500.0}).eval()"),
    ("Llama's inverse frequencies", "Llama()", "model.model.rotary_emb.inv_freq.mul_(2)"),
    ("Llama's scale of rotation", "Llama()", "model.model.rotary_emb.attention_scaling = 2.0"),
    ("Llama's tied weights", "Llama()", "model = app.Llama(tie_word_embeddings=True).eval()"),
    ("Llama's window of attention", "Llama()", "model.model.layers[0].self_attn.scaling = 0.3"),
    ("Llama's epsilon", "Llama()", "model.model.norm.variance_epsilon = 1e-2"),
    ("Llama is quantized to bfloat16", "Llama()", "model = model.bfloat16()"),
    ("a function of transformers is patched", "Llama()", "import transformers.models.llama.modeling_llama as m\nm.rotate_half = lambda x: x"),
    ("a mask function of transformers is patched", "Llama()", "import transformers.masking_utils as m\nm.causal_mask_function = lambda b, h, q, k: q >= 0\nimport transformers.models.llama.modeling_llama as n"),
    ("sdpa of transformers is patched", "Llama()", "from transformers import AttentionInterface\nfrom transformers.integrations.sdpa_attention import sdpa_attention_forward as f\nAttentionInterface.register('sdpa', lambda m, q, k, v, *a, **w: f(m, q * 2, k, v, *a, **w))"),
    ("a layer's attention is replaced", "Llama()", "model.model.layers[0].mlp = torch.nn.Identity()"),
):
    _add(f"transformers: {_doc}", _BERT, _change, make=f"import app\nmodel = app.{_make}.eval()\n", first=_IDS)
for _doc, _make, _change in (
    ("BERT is retrained", "Bert()", "model.train()\nmodel(*args)[0].sum().backward()\ntorch.optim.SGD(model.parameters(), 0.1).step()\nmodel.eval()"),
    ("BERT was called", "Bert()", "with torch.no_grad(): model(*args)"),
    ("Llama was called", "Llama()", "with torch.no_grad(): model(*args)"),
    ("Llama is copied", "Llama()", "import copy; model = copy.deepcopy(model)"),
    ("Llama generated a text", "Llama()", "model.generate(args[0], max_new_tokens=2, do_sample=False)"),
    ("other tokens", "Bert()", "args = (torch.ones(1, 5, dtype=torch.long) * 3,)"),
    ("verbosity of logs", "Bert()", "import transformers; transformers.logging.set_verbosity_debug()"),
):
    _add(f"transformers, harmless: {_doc}", _BERT, _change, make=f"import app\nmodel = app.{_make}.eval()\n", first=_IDS, harmless=True)

_OP = """
VERSION = 2.0
@torch.library.custom_op("own::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0
@twice.register_fake
def _(x):
    return torch.empty_like(x)
LIB = torch.library.Library("own2", "DEF")
LIB.define("comp(Tensor x) -> Tensor")
def comp(x):
    return x * VERSION
LIB.impl("comp", comp, "CompositeImplicitAutograd")
LIB.define("kern(Tensor x, float by=2.0) -> Tensor")
LIB.impl("kern", lambda x, by=2.0: x * VERSION, "CPU")
torch.library.register_fake("own2::kern", lambda x, by=2.0: torch.empty_like(x))
LIB.define("rows(Tensor x) -> Tensor")
LIB.impl("rows", lambda x: x[:2].clone(), "CPU")
torch.library.register_fake("own2::rows", lambda x: x.new_empty(2, 4))
def late(x):
    return x * VERSION
"""
for _doc, _forward, _change, _to in (
    ("a custom operator's kernel is edited", "torch.ops.own.twice(x)", "", ("return x * 2.0", "return x * 3.0")),
    ("a custom operator's fake kernel is edited", "torch.ops.own.twice(x).t()", "", ("return torch.empty_like(x)\n", "return torch.empty_like(x.t()).t()\n")),
    ("a composite operator's constant", "torch.ops.own2.comp(x)", "app.VERSION = 3.0", None),
    ("a kernel's constant", "torch.ops.own2.kern(x)", "app.VERSION = 3.0", None),
    ("an argument of an operator", "torch.ops.own2.kern(x, 2.0)", "", ("kern(x, 2.0)", "kern(x, 3.0)")),
    ("a default of a schema", "torch.ops.own2.kern(x)", "", ("by=2.0) -> Tensor", "by=3.0) -> Tensor")),
    ("an operator has more rows", "torch.ops.own2.rows(x)", "", ("x[:2].clone()", "x[:3].clone()"), ),
    ("an operator's fake has more rows", "torch.ops.own2.rows(x).sum(0)", "", ("x.new_empty(2, 4)", "x.new_empty(3, 4)")),
    ("an operator of aten has a kernel in Python", "F.silu(x)", "L = torch.library.Library('aten', 'IMPL'); L.impl('silu', lambda x: x * 3, 'CPU')", None),
    ("a composite operator of aten has another kernel", "F.linear(x, self.lin.weight)", "L = torch.library.Library('aten', 'IMPL'); L.impl('linear', lambda x, w, b=None: x * 3, 'CompositeImplicitAutograd')", None),
    ("an operator of aten has an autograd kernel", "F.silu(x)", "L = torch.library.Library('aten', 'IMPL'); L.impl('silu', lambda x: x * 3, 'AutogradCPU')", None),
    ("an operator of aten has a fake kernel", "F.silu(x)", "L = torch.library.Library('aten', 'IMPL'); L.impl('silu', lambda x: x.new_empty(3, 4), 'Meta', allow_override=True)", None),
    ("a decomposition is replaced", "F.silu(x)", "import torch._decomp as d\nd.decomposition_table[torch.ops.aten.silu.default] = lambda x: x * 3", None),
    ("a decomposition of a composite operator is replaced", "F.linear(x, self.lin.weight)", "torch.ops.aten.linear.default.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd] = lambda x, w, b=None: x * 3\ntorch.ops.aten.linear.default._dispatch_cache.clear()", None),
    ("an operator's call is patched", "torch.ops.aten.relu.default(x - 3)", "torch.ops.aten.relu.default.__class__.__call__ = lambda s, *a, **k: s._op(*a, **k) * (3 if 'relu' in str(s) else 1)", None),
    ("a function of torch is patched", "torch.relu(x - 3)", "torch.relu = lambda x: x * 3", None),
    ("a method of tensors is patched", "(x - 3).relu()", "torch.Tensor.relu = lambda x: x * 3", None),
    ("an operator of tensors is patched", "x @ x.t()", "torch.Tensor.__matmul__ = lambda x, y: x * 3", None),
    ("a property of tensors is patched", "x @ x.T", "torch.Tensor.T = property(lambda x: x.t() * 3)", None),
    ("functional is patched", "F.gelu(x)", "torch.nn.functional.gelu = lambda x: x * 3", None),
    ("einsum is patched", "torch.einsum('ab,cb->ac', x, x)", "torch.functional.einsum = torch.einsum = lambda *a: x * 3", None),
    ("a layer's class is patched", "self.lin(x)", "torch.nn.Linear.forward = lambda s, x: x * 3", None),
    ("Module.__call__ is patched", "self.lin(x)", "c = torch.nn.Module.__call__\ntorch.nn.Module.__call__ = lambda s, *a, **k: c(s, *a, **k) * (3 if type(s).__name__ == 'Linear' else 1)", None),
    ("a fake kernel is patched in torch", "F.silu(x)", "import torch._meta_registrations", None),
    ("the autograd function's apply is patched", "torch.utils.checkpoint.checkpoint(self.lin, x, use_reentrant=True)", "import torch.utils.checkpoint as c\nc.CheckpointFunction.apply = lambda f, p, *a: f(*a) * 3", None),
):
    _add(f"operators: {_doc}", _model(_forward, "pass", "import torch.utils.checkpoint\n" + _OP), _change, *((_to,) if _to else ()))

_TOP = """
import abc, argparse, collections, contextvars, dataclasses, enum, functools, itertools, json, logging, math, operator, os, pathlib, random, threading, types, typing, warnings, weakref
import numpy, pydantic, yaml
import torch.nn.utils.parametrize as P
class Cfg(pydantic.BaseModel):
    by: float = 2.0
    dims: list[int] = [0, 1]
class Mode(enum.Enum):
    FAST = 2.0
    SLOW = 3.0
class Desc:
    value = 2.0
    def __get__(self, obj, cls):
        return self.value
class Meta(type):
    by = 2.0
    def __getattr__(cls, name):
        return cls.by
class Lazy(metaclass=Meta):
    pass
REG = {}
def register(name):
    def put(f):
        REG[name] = f
        return f
    return put
@register("act")
def act(x):
    return x * 2
@functools.lru_cache
def scale(name):
    return float(os.environ.get(name, "2"))
@functools.lru_cache
def table(n):
    return torch.ones(n, 4) * 2
@functools.singledispatch
def kind(v, x):
    return x * 2
class Times(nn.Module):
    def __init__(self, by=2.0):
        super().__init__()
        self.by = by
    def forward(self, x):
        return x * self.by
class Lora(nn.Module):
    def __init__(self, base, alpha=2.0, merged=False):
        super().__init__()
        self.base, self.alpha, self.merged = base, alpha, merged
        self.a, self.b = nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.ones(4, 2))
    def forward(self, x):
        y = self.base(x)
        return y if self.merged else y + (x @ self.a.t() @ self.b.t()) * self.alpha
def hook(m, a, o):
    return o * 2
CELL = (lambda v: (lambda: v))(2.0)
CACHE = {}
HIST = collections.deque([2.0])
def cached(x):
    if 'w' not in CACHE:
        CACHE['w'] = torch.ones(4) * 2
    return x * CACHE['w']
_last = None
def last(x):
    global _last
    if _last is None:
        _last = torch.ones(4)
    return x * _last
class State(threading.local):
    by = 2.0
STATE = State()
CTX = contextvars.ContextVar('c', default=2.0)
LOG = logging.getLogger('app')
def schedule():
    for by in (2.0, 3.0):
        yield by
"""
_ALL = "self.cfg = Cfg()\nself.act = act\nself.mode = Mode.FAST\nself.ls = nn.ModuleList([Times(2.0), nn.Linear(4, 4), Times(3.0)])\nself.lora = Lora(nn.Linear(4, 4))\nself.part = functools.partial(torch.mul, other=2.0)\nself.steps = [lambda x: x * 2, torch.relu]\nself.path = pathlib.Path('c.yaml')\nself.calls = 0\nself.ds = nn.ParameterDict({'a': torch.ones(4), 'b': torch.ones(4) * 2})\nself.tied = nn.Linear(4, 4)\nself.tied.weight = self.lin.weight\nself.register_buffer('mean', torch.zeros(4))\nself.register_buffer('std', torch.ones(4), persistent=False)\nself.it = iter([2.0] * 50)\nself.gen = numpy.random.default_rng(0)\nself.ns = types.SimpleNamespace(by=2.0)\nself.bn = nn.BatchNorm1d(4)\nself.drop = nn.Dropout(0.5)"
for _doc, _forward, _change in (
    ("a field of pydantic", "x * self.cfg.by", "model.cfg.by = 3.0"), ("a list in pydantic", "x.sum(self.cfg.dims[0])", "model.cfg.dims[0] = 1"), ("a copied pydantic model", "x * self.cfg.by", "model.cfg = model.cfg.model_copy(update={'by': 3.0})"),
    ("a member of an enum", "x * self.mode.value", "model.mode = app.Mode.SLOW"), ("an enum's value", "x * self.mode.value", "app.Mode.FAST._value_ = 3.0"), ("an identity of an enum", "x * (2 if self.mode is Mode.FAST else 3)", "model.mode = app.Mode.SLOW"),
    ("an entry of a registry", "REG['act'](x)", "app.REG['act'] = torch.relu"), ("a registry by decorator", "REG['act'](x)", "app.register('act')(lambda x: x * 3)"), ("a function's defaults", "act(x)", "app.act.__code__ = (lambda x: x * 3).__code__"),
    ("a cached function", "x * scale('BY')", "import os; os.environ['BY'] = '3'; app.scale.cache_clear()"), ("a cached tensor", "x * table(3)", "app.table(3).mul_(2)"), ("a cache that is patched", "x * table(3)", "app.table = lambda n: torch.ones(n, 4) * 3"),
    ("a kind of singledispatch", "kind(1, x)", "app.kind.register(int, lambda v, x: x * 3)"), ("an item of a ModuleList", "self.ls[0](x)", "model.ls[0].by = 3.0"), ("two items change places", "self.ls[0](x)", "model.ls[0], model.ls[2] = model.ls[2], model.ls[0]"),
    ("an item is appended", "[x := l(x) for l in self.ls][-1]", "model.ls.append(app.Times(5.0))"), ("an item is deleted", "[x := l(x) for l in self.ls][-1]", "del model.ls[0]"), ("an item is inserted", "[x := l(x) for l in self.ls][-1]", "model.ls.insert(0, torch.nn.ReLU())"),
    ("LoRA's alpha", "self.lora(x)", "model.lora.alpha = 4.0"), ("LoRA is merged", "self.lora(x)", "model.lora.merged = True"), ("LoRA's rank", "self.lora(x)", "model.lora.a = torch.nn.Parameter(torch.ones(3, 4)); model.lora.b = torch.nn.Parameter(torch.ones(4, 3))"), ("LoRA is put on a layer", "self.lin(x)", "model.lin = app.Lora(model.lin)"),
    ("a partial's argument", "self.part(x)", "import functools; model.part = functools.partial(torch.mul, other=3.0)"), ("a step of a list", "self.steps[0](x)", "model.steps.reverse()"), ("a closure's cell", "x * CELL()", "app.CELL.__closure__[0].cell_contents = 3.0"),
    ("a parameter of a dictionary", "x * self.ds['a']", "model.ds['a'], model.ds['b'] = model.ds['b'], model.ds['a']"), ("the order of a dictionary", "sum(i * x * p for i, p in enumerate(self.ds.values()))", "a = model.ds.pop('a'); model.ds['a'] = a"), ("a weight is untied", "self.tied(self.lin(x))", "model.tied.weight = torch.nn.Parameter(model.lin.weight.detach().clone())"),
    ("weights are tied", "self.lin(self.ls[1](x))", "model.ls[1].weight = model.lin.weight"), ("a persistent buffer's value", "x + self.mean", "model.mean.add_(1)"), ("a non-persistent buffer's value", "x * self.std", "model.std.mul_(2)"), ("a buffer of another dtype", "x * self.mean", "model.mean = model.mean.double()"),
    ("a buffer of another shape", "x * self.mean", "model.mean = torch.zeros(1, 4)"), ("a buffer is a number", "x + self.mean", "del model.mean; model.mean = 1.0"), ("an iterator goes on", "x * next(self.it)", "model.it = iter([3.0] * 50)"), ("a generator of NumPy", "x * float(self.gen.random())", "import numpy; model.gen = numpy.random.default_rng(1)"),
    ("a namespace", "x * self.ns.by", "model.ns.by = 3.0"), ("training mode", "self.drop(x)", "model.train()"), ("training mode of a normalization", "self.bn(x)", "model.bn.train()"), ("running statistics are dropped", "self.bn(x)", "model.bn.track_running_stats = False; model.bn.running_mean = model.bn.running_var = None"),
    ("a momentum in training", "self.bn.train()(x)", "model.bn.momentum = 0.3"), ("a normalization's epsilon", "self.bn(x)", "model.bn.eps = 0.1"), ("a forward hook", "self.lin(x)", "model.lin.register_forward_hook(app.hook)"), ("a hook of the model", "self.lin(x)", "model.register_forward_hook(app.hook)"), ("a pre-hook of the model", "self.lin(x)", "model.register_forward_pre_hook(lambda m, a: (a[0] * 2,))"),
    ("a global hook", "self.lin(x)", "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2 if type(m).__name__ == 'Linear' else None)"), ("a hook is removed", "self.lin(x)", "h = model.lin.register_forward_hook(app.hook); h.remove(); model.lin.register_forward_hook(lambda m, a, o: o * 3)"),
    ("a parametrization", "self.lin(x)", "import torch.nn.utils.parametrize as P; P.register_parametrization(model.lin, 'weight', app.Times(3.0))"), ("weight_norm", "self.lin(x)", "torch.nn.utils.parametrizations.weight_norm(model.lin)"), ("the old weight_norm", "self.lin(x)", "torch.nn.utils.weight_norm(model.lin)"), ("spectral_norm", "self.lin(x)", "torch.nn.utils.parametrizations.spectral_norm(model.lin)"),
    ("pruning", "self.lin(x)", "import torch.nn.utils.prune as p; p.l1_unstructured(model.lin, 'weight', 0.5)"), ("orthogonal weights", "self.lin(x)", "torch.nn.utils.parametrizations.orthogonal(model.lin)"), ("dynamic quantization", "self.lin(x)", "model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})"),
    ("half precision", "self.lin(x.to(self.lin.weight.dtype))", "model.bfloat16()"), ("a layer is an identity", "self.lin(x)", "model.lin = torch.nn.Identity()"), ("a layer is compiled", "self.lin(x)", "model.lin = torch.compile(model.lin, backend='eager')"), ("a layer is compiled in place", "self.lin(x)", "model.lin.compile(backend='eager')"),
    ("the model's forward is replaced", "self.lin(x)", "model.forward = lambda x: x * 3"), ("the class's forward is replaced", "self.lin(x)", "type(model).forward = lambda s, x: x * 3"), ("the model's class is another", "self.lin(x)", "class M(app.Model):\n    def forward(self, x): return x * 3\nmodel.__class__ = M"), ("a wrapper is around the model", "self.lin(x)", "model = torch.nn.Sequential(model, torch.nn.ReLU()).eval()"),
    ("a thread's value", "x * STATE.by", "app.STATE.by = 3.0"), ("a context's value", "x * CTX.get()", "app.CTX.set(3.0)"), ("a level of logs that forward reads", "x * (2 if LOG.isEnabledFor(10) else 3)", "import logging; app.LOG.setLevel(10)"), ("a metaclass's attribute", "x * Lazy.anything", "app.Meta.by = 3.0"), ("a deque", "x * HIST[-1]", "app.HIST.append(3.0)"),
    ("a cache of tensors", "cached(x)", "app.CACHE['w'] = torch.ones(4) * 3"), ("a cache of tensors that is filled", "cached(x)", "app.cached(args[0]); app.CACHE['w'].mul_(2)"), ("a global tensor", "last(x)", "app._last = torch.ones(4) * 3"), ("a generator function", "x * next(schedule())", "app.schedule = lambda: iter([3.0])"),
    ("a seed of random", "x * random.Random(0).random()", "import random; random.Random = type('R', (random.Random,), {'random': lambda s: 0.5})"), ("an environment's variable", "x * float(os.environ.get('BY', 2))", "import os; os.environ['BY'] = '3'"), ("math.sqrt is patched", "x / math.sqrt(4)", "import math; math.sqrt = lambda v: 5.0"),
    ("the default dtype", "x * torch.ones(4)", "torch.set_default_dtype(torch.float64)"), ("the default device", "x * torch.ones(4).to('cpu')", "torch.set_default_device('meta'); args = (args[0],)"), ("a precision of matmul", "self.lin(x)", "torch.set_float32_matmul_precision('medium')"), ("deterministic algorithms", "torch.empty(3, 4).fill_(1) + x", "torch.use_deterministic_algorithms(True)"),
    ("the fast path is off", "F.softmax(x, 1)", "torch.backends.mha.set_fastpath_enabled(False)"), ("attention's kernel", "F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])", "torch.backends.cuda.enable_flash_sdp(False)"), ("einsum's strategy", "torch.einsum('ab,bc,cd->ad', x, x.t(), x)", "torch.backends.opt_einsum.enabled = False"), ("mkldnn is off", "F.conv1d(x[None], self.lin.weight[:, :3, None])", "torch.backends.mkldnn.enabled = False"),
    ("gradients are off", "self.lin(x)", "torch.set_grad_enabled(False)"), ("gradients are off, and forward asks", "x * (2 if torch.is_grad_enabled() else 3)", "torch.set_grad_enabled(False)"), ("autocast is on", "self.lin(x)", "torch.autocast('cpu').__enter__()"), ("inference mode is on", "self.lin(x)", "kept = torch.inference_mode(); kept.__enter__()"),
    ("weights are frozen", "self.lin(x)", "model.requires_grad_(False)"), ("weights are frozen, and forward asks", "x * (2 if self.lin.weight.requires_grad else 3)", "model.requires_grad_(False)"), ("weights are channels_last", "self.lin(x)", "model.lin.weight.data = model.lin.weight.data.t().contiguous().t()"), ("weights share memory", "self.lin(x) + self.ls[1](x)", "model.ls[1].weight.data = model.lin.weight.data"),
    ("weights are a view of one memory", "self.lin(x) + self.ls[1](x)", "m = torch.zeros(32); model.lin.weight.data = m[:16].view(4, 4); model.ls[1].weight.data = m[16:].view(4, 4)"), ("arguments are one tensor", "self.lin(x)", "args = (args[0].double().float(),)"), ("an argument of other sizes", "self.lin(x)", "args = (torch.ones(5, 4),)"), ("an argument of another dtype", "x * 2", "args = (args[0].double(),)"),
    ("an argument is transposed", "x * 2", "args = (torch.arange(12.).view(4, 3).t(),)"), ("an argument by name", "self.lin(x)", "args, kwargs = (), {'x': args[0]}"), ("an argument requires a gradient", "self.lin(x)", "args[0].requires_grad_()"), ("an argument is a parameter", "self.lin(x)", "args = (torch.nn.Parameter(args[0]),)"), ("an argument is the model's own", "self.lin(x) + self.mean", "args = (model.mean[None],)"),
    ("an attribute is a property", "x * self.ns.by", "type(model).ns = property(lambda s: __import__('types').SimpleNamespace(by=3.0)); model.__dict__.pop('ns')"), ("__getattr__ is replaced", "x * self.nowhere if hasattr(self, 'nowhere') else x * 2", "g = torch.nn.Module.__getattr__\ntype(model).__getattr__ = lambda s, n: 3.0 if n == 'nowhere' else g(s, n)"), ("an attribute appears", "x * getattr(self, 'extra', 2.0)", "model.extra = 3.0"),
    ("the stack of hooks is ordered otherwise", "self.lin(x)", "model.lin.register_forward_hook(lambda m, a, o: o + 1); model.lin.register_forward_hook(app.hook, prepend=True)"), ("a configuration of yaml", "x * yaml.safe_load('by: 2.0')['by']", "app.yaml.safe_load = lambda t: {'by': 3.0}"), ("functional's training flag", "F.dropout(x, 0.5, self.training)", "model.training = True"), ("extra state", "x * self.ns.by", "model.ns = type('N', (), {'by': 3.0})"),
    ("a cache was filled by a call", "cached(x)", "model(args[0])"),
    ("a global was filled by a call", "last(x)", "model(args[0])"),
    ("a cached table was filled by a call", "x * table(3)", "model(args[0])"),
    ("dynamo's configuration", "self.lin(x)", "import torch._dynamo; torch._dynamo.config.cache_size_limit = 3"), ("a configuration of symbols", "self.lin(x)", "import torch.fx.experimental._config as c; c.backed_size_oblivious = True"), ("a configuration of functorch", "self.lin(x)", "import torch._functorch.config as c; c.functionalize_rng_ops = True"),
    ("__torch_function__ of a tensor is replaced", "self.lin(x)", "torch.Tensor.__torch_function__ = classmethod(lambda c, f, t, a=(), k=None: f(*a, **(k or {})))"), ("a mode of functions is on", "self.lin(x)", "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n        o = f(*a, **(k or {}))\n        return o * 3 if f is torch.nn.functional.linear else o\nM().__enter__()"),
):
    _add(f"users: {_doc}", _model(_forward, _ALL, _TOP), _change)

_add("users: two arguments are one tensor, and forward asks", _model("x * (3 if x is y else 2)").replace("self, x)", "self, x, y)"), "a = torch.ones(3, 4); args = (a, a)", first="args = (torch.ones(3, 4), torch.ones(3, 4))\n")
_add("users: arguments by name in another order", _model("x - y").replace("self, x)", "self, x, y)"), "kwargs = {'y': kwargs['x'], 'x': kwargs['y']}", first="args, kwargs = (), {'x': torch.ones(3, 4), 'y': torch.zeros(3, 4)}\n")
_add("users: parameters of forward change places", _model("x - y").replace("self, x)", "self, x, y)"), "", ("self, x, y)", "self, y, x)"), first="args = (torch.ones(3, 4), torch.zeros(3, 4))\n")
_add("users: parameters of forward are renamed", _model("x - y").replace("self, x)", "self, x, y)"), "", ("self, x, y)", "self, x, z)"), ("x - y", "x - z"), first="args = (torch.ones(3, 4), torch.zeros(3, 4))\n")
_add("users: a default of forward", _model("x * by").replace("self, x)", "self, x, by=2.0)"), "type(model).forward.__defaults__ = (3.0,)")
_add("users: an argument's value", _model("x * by").replace("self, x)", "self, x, by=2.0)"), "args = (args[0], 3.0)", first="args = (args[0], 2.0)\n")
_add("users: an argument's value is True", _model("x + by").replace("self, x)", "self, x, by=2.0)"), "args = (args[0], True)", first="args = (args[0], 1)\n")
_add("users: an argument's zero is negative", _model("x * 0 + by").replace("self, x)", "self, x, by=2.0)"), "args = (args[0], -0.0)", first="args = (args[0], 0.0)\n")
_add("users: a text argument", _model("x * (2 if by == 'a' else 3)").replace("self, x)", "self, x, by='a')"), "args = (args[0], 'b')", first="args = (args[0], 'a')\n")
_add("users: an argument is None", _model("x if by is None else x * 3").replace("self, x)", "self, x, by=None)"), "args = (args[0], torch.ones(1))", first="args = (args[0], None)\n")
_add("users: a dictionary argument's order", _model("sum(i * v for i, v in enumerate(x.values()))"), "args = (dict(reversed(args[0].items())),)", first="args = ({'a': torch.ones(4), 'b': torch.ones(4)},)\n")

# 7. What must not matter.

for _doc, _forward, _change in (
    ("a retrained layer", "self.lin(x)", "torch.nn.init.normal_(model.lin.weight)"), ("an optimizer's step", "self.lin(x)", "o = torch.optim.Adam(model.parameters()); model(args[0]).sum().backward(); o.step()"), ("weights have gradients", "self.lin(x)", "model(args[0]).sum().backward()"), ("train, then eval", "self.bn(self.drop(x))", "model.train(); model(args[0]); model.eval()"),
    ("another rate of dropout in eval mode", "self.drop(x)", "model.drop.p = 0.1"), ("another momentum in eval mode", "self.bn(x)", "model.bn.momentum = 0.3"), ("running statistics are others", "self.bn(x)", "model.bn.running_mean.add_(1)"), ("a deepcopy", "self.lin(x)", "import copy; model.it = None; model = copy.deepcopy(model)"), ("a state is loaded", "self.lin(x)", "model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})"),
    ("a state is assigned", "self.ls[1](x)", "model.ls[1].load_state_dict({k: torch.nn.Parameter(v * 2) for k, v in model.ls[1].state_dict().items()}, assign=True)"), ("a layer that is unused is edited", "self.lin(x)", "model.ls[0].by = 5.0"), ("a configuration that is unused", "self.lin(x)", "model.cfg.by = 5.0"), ("other values of the arguments", "self.lin(x)", "args = (args[0] * 2,)"),
    ("weights move", "self.lin(x)", "for p in model.parameters(): p.data = p.data.clone()"), ("weights are shared between processes", "self.lin(x)", "model.share_memory()"), ("a hook that returns nothing", "self.lin(x)", "model.lin.register_forward_hook(lambda m, a, o: None)"), ("a hook is added and removed", "self.lin(x)", "model.lin.register_forward_hook(app.hook).remove()"), ("a backward hook", "self.lin(x)", "model.lin.weight.register_hook(lambda g: g)"),
    ("calls before", "self.lin(x)", "for _ in range(3): model(args[0])"), ("a level of logs", "LOG.info('a')\nreturn self.lin(x)", "import logging; app.LOG.setLevel(10); logging.basicConfig(level=10)"), ("a handler of logs", "LOG.warning('a')\nreturn self.lin(x)", "import logging; app.LOG.addHandler(logging.StreamHandler())"),
    ("a seed", "self.lin(x)", "torch.manual_seed(5); import random; random.seed(5)"), ("filters of warnings", "warnings.warn('a')\nreturn self.lin(x)", "import warnings; warnings.simplefilter('ignore')"), ("an environment's variable", "self.lin(x)", "import os; os.environ['ELSE'] = '1'; os.environ['HOME'] = '/tmp'"), ("the current folder", "self.lin(x)", "import os; os.makedirs('sub', exist_ok=True); os.chdir('sub')"), ("options of printing", "self.lin(x)", "torch.set_printoptions(precision=2)"),
    ("threads", "self.lin(x)", "torch.set_num_threads(1)"), ("a class's name", "self.lin(x)", "app.Model.__name__ = app.Model.__qualname__ = 'Other'"), ("a module's attributes", "self.lin(x)", "app.UNUSED = 3; model.unused = 5; model.lin.note = 'x'"), ("garbage is collected", "self.lin(x)", "import gc; gc.collect(); gc.disable()"), ("a function is wrapped", "act(x)", "import functools; f = app.act\napp.act = functools.wraps(f)(lambda x: f(x))"),
    ("a method is mocked with a spy", "act(x)", "import unittest.mock as m; app.act = m.Mock(wraps=app.act)"), ("a rewritten expression", "x * 2", "type(model).forward = lambda s, x: x * (1 + 1)"), ("a thread runs", "self.lin(x)", "import threading; t = threading.Thread(target=lambda: None); t.start(); t.join()"), ("a profiler ran", "self.lin(x)", "with torch.profiler.profile(): model(args[0])"), ("a compile of another model", "self.lin(x)", "import torch._dynamo; torch.compile(torch.nn.ReLU(), backend='eager')(args[0])"),
    ("an export before", "self.lin(x)", "torch.export.export(model, args)"), ("torch.jit.trace before", "self.lin(x)", "torch.jit.trace(model.lin, args)"), ("ONNX was imported", "self.lin(x)", "import onnx"), ("counters", "self.calls += 1\nreturn self.lin(x)", "model.calls = 100"), ("a value that is read and unused", "float(self.ns.by)\nreturn self.lin(x)", "model.ns.by = 5.0"), ("print", "print(self.calls)\nreturn self.lin(x)", "model.calls = 3"), ("an optimizer that is kept", "self.lin(x)", "model.opt = torch.optim.SGD(model.parameters(), 0.1)"),
    ("a vectorized reset", "self.lin(x)", "model.lin.reset_parameters()"), ("a weight's data is replaced", "self.lin(x)", "model.lin.weight.data = torch.ones(4, 4)"), ("a new parameter of the same kind", "self.ls[1](x)", "model.ls[1].weight = torch.nn.Parameter(torch.ones(4, 4))"), ("a new layer of the same kind", "self.ls[1](x)", "model.ls[1] = torch.nn.Linear(4, 4)"), ("EMA weights", "self.lin(x)", "m = torch.optim.swa_utils.AveragedModel(model.lin); m.update_parameters(model.lin); model.lin.load_state_dict(m.module.state_dict())"),
):
    _add(f"harmless: {_doc}", _model(_forward, _ALL, _TOP), _change, harmless=True)
for _doc, _old, _new in (
    ("a comment", "return self.lin(x)", "# why\n        return self.lin(x)"), ("a docstring", "return self.lin(x)", "'''Return it.'''\n        return self.lin(x)"), ("a local's name", "y = self.lin(x)\n        return y", "out = self.lin(x)\n        return out"), ("a name of a variable and an f-string", "y = self.lin(x)\n        return y", "y = self.lin(x)\n        f'{y.shape}'\n        return y"), ("an unused function", "class Model", "def unused():\n    return 1\n\nclass Model"), ("a type annotation", "def forward(self, x):", "def forward(self, x: torch.Tensor) -> torch.Tensor:"),
    ("logging is added", "return self.lin(x)", "import logging\n        logging.getLogger('a').warning('%s', x.shape)\n        return self.lin(x)"), ("a helper is extracted", "return self.lin(x)", "return (lambda a: self.lin(a))(x)"), ("a loop is unrolled", "for _ in range(2): x = x * 2\n        return self.lin(x)", "x = x * 2\n        x = x * 2\n        return self.lin(x)"), ("an operator is a method", "return self.lin(x) + 1", "return self.lin(x).add(1)"), ("an operator is a function", "return self.lin(x) * 2", "return torch.mul(self.lin(x), 2)"), ("F.linear for a layer", "return self.lin(x)", "return F.linear(x, self.lin.weight, self.lin.bias)"),
    ("an early return", "y = self.lin(x)\n        return y", "if x.shape[0] == 99:\n            return x\n        return self.lin(x)"), ("an assertion on a shape", "return self.lin(x)", "assert x.dim() == 2\n        return self.lin(x)"), ("a parameter is renamed in an unused method", "class Model", "import json\n\nclass Model"), ("a base class is added", "class Model(nn.Module)", "class Mixin: pass\n\nclass Model(Mixin, nn.Module)"), ("a slot of time", "return self.lin(x)", "import time\n        t = time.perf_counter()\n        y = self.lin(x)\n        time.perf_counter() - t\n        return y"), ("an unused attribute", "self.lin = nn.Linear(4, 4)", "self.lin = nn.Linear(4, 4)\n        self.extra = 3"),
):
    _add(f"harmless: {_doc}", _model(_old.replace("\n        ", "\n") if _old.startswith(("return", "y =", "for")) else "self.lin(x)"), "", (_old, _new), harmless=True)
_add("harmless: a pickled model", _model("self.lin(x)"), "import pickle; model = pickle.loads(pickle.dumps(model))", harmless=True)
_add("harmless: a saved model", _model("self.lin(x)"), "torch.save(model, 'm.pt'); model = torch.load('m.pt', weights_only=False)", harmless=True)
_add("harmless: a mapped checkpoint", _model("self.lin(x)"), "torch.save(model.state_dict(), 'm.pt'); model.load_state_dict(torch.load('m.pt', mmap=True))", harmless=True)
_add("harmless: an unrelated module is edited", _model("self.lin(x)", top="import other") + "--- other.py\nA = 1\n", "", ("A = 1", "A = 2"), harmless=True)
_add("harmless: a variable of the environment", _model("self.lin(x)"), env={"SOME": "1", "LANG": "C", "CUDA_VISIBLE_DEVICES": ""}, harmless=True)
_add("harmless: a model from safetensors", _model("self.lin(x)"), "import safetensors.torch as s; s.save_model(model, 'm.st'); s.load_model(model, 'm.st')", harmless=True)
_add("harmless: a new folder of files", _model("self.lin(x)"), "", added="--- util/__init__.py\nA = 1\n", harmless=True)

# 8. The same questions with two numbers that differ: the same program again must be found, or direct mode must be off.

_TOLD = (  # a run on fake tensors, or a replay, answers otherwise than an export
    "whether a flattened tensor is the same one",
    "whether two views share their storage",
    "whether two results share their storage",
    "whether a result is conjugated",
    "whether the imaginary part is negative lazily",
    "whether a result has a torch function",
    "whether two weights share memory",
    "whether a buffer is a Buffer",
    "whether fx traces",
    "a weak reference to a dropped result",
    "a weak reference to a dropped result, after a collection",
    "a finalizer of a result",
    "a weight's offset",
    "the size of a weight's storage",
    "for a mode of functions",
    "for two modes of functions",
    "for two modes of dispatch",
    "for the fake mode's symbols",
    "the stack for torch.export",
    "the stack for the module's caller",
    "the fast path's switch",
    "the predispatch key",
)

for _doc, _question, _before in _RESULTS:
    _add(f"asks {_doc}: nothing has changed", _model(f"{_before}\nby = A if {_question} else B\nreturn y * by", "self.k = nn.Parameter(torch.ones(2, 3, 1, 1))", _ASK.replace("B = 2.0", "B = 3.0")), "", harmless=_doc not in _TOLD)
for _doc, _question, _init in _WEIGHTS:
    _add(f"asks {_doc}: nothing has changed", _model(f"by = A if {_question} else B\nreturn self.lin(x) * by", _init, _ASK.replace("B = 2.0", "B = 3.0")), "", harmless=_doc not in _TOLD)
for _doc, _question in _PROCESS:
    _add(f"asks {_doc}: nothing has changed", _model(f"by = A if {_question} else B\nreturn self.lin(x) * by", "pass", _ASK.replace("B = 2.0", "B = 3.0")), "", harmless=_doc not in _TOLD)

# 9. Whether an operator without effect returns its argument.

for _doc, _expression in (
    ("float", "x.float()"), ("cpu", "x.cpu()"), ("type_as", "x.type_as(x)"), ("to a device", "x.to('cpu')"), ("as_tensor", "torch.as_tensor(x)"), ("atleast_2d", "torch.atleast_2d(x)"), ("dropout in eval mode", "F.dropout(x, 0.5, False)"), ("real", "torch.real(x)"), ("conj", "x.conj()"), ("resolve_conj", "x.resolve_conj()"), ("positive", "+x"), ("detach", "x.detach()"),
    ("reshape", "x.reshape(3, 4)"), ("contiguous", "x.contiguous()"), ("requires_grad_", "x.requires_grad_(False)"), ("Identity", "nn.Identity()(x)"), ("squeeze", "x.squeeze()"), ("expand_as", "x.expand_as(x)"), ("data", "x.data"), ("contiguous of a result", "(z := x * 2).contiguous() is z or"), ("float of a weight", "(z := self.lin.weight).float() is z or"), ("contiguous of a weight", "(z := self.lin.weight).contiguous() is z or"),
    ("zeros_like out", "torch.add(z := x * 0, 1, out=z) is z or"), ("in-place by +=", "operator.iadd(z := x * 2, 1) is z or"), ("requires_grad_ of a result", "(z := x * 2).requires_grad_() is z or"),
):
    _ask(f"whether {_doc} returns its argument", f"({_expression} False)" if _expression.endswith("or") else f"({_expression} is x)", top="import operator\n")

# 10. A model that catches exceptions, and other ways to hide an operation.

for _doc, _old, _new in (
    ("a bare except hides another number", "try:\n    y = x * 2.0\nexcept:\n    y = x * 2.0", "try:\n    y = x * 3.0\nexcept:\n    y = x * 2.0"),
    ("except Exception hides another number", "try:\n    y = x * 2.0\nexcept Exception:\n    y = x * 2.0", "try:\n    y = x * 3.0\nexcept Exception:\n    y = x * 2.0"),
    ("except BaseException hides another number", "try:\n    y = x * 2.0\nexcept BaseException:\n    y = x * 2.0", "try:\n    y = x * 3.0\nexcept BaseException:\n    y = x * 2.0"),
    ("finally with return hides another number", "y = (lambda: x * 2.0)()", "def f():\n    try:\n        y = x * 3.0\n    finally:\n        return x * 2.0\ny = f()\ny = x * 3.0 if f() is None else y + x * 0"),
    ("a context that suppresses", "y = x * 2.0", "y = None\nwith contextlib.suppress(BaseException):\n    y = x * 3.0\nif y is None:\n    y = x * 2.0"),
    ("a context's __exit__ is true", "y = x * 2.0", "y = None\nwith Quiet():\n    y = x * 3.0\nif y is None:\n    y = x * 2.0"),
    ("an except that retries", "y = x * 2.0", "for by in (3.0, 2.0):\n    try:\n        y = x * by\n        break\n    except BaseException:\n        pass"),
    ("a layer is tried and replaced", "y = self.lin(x)", "try:\n    y = F.silu(x) * 3\nexcept BaseException:\n    y = self.lin(x)"),
    ("a thread calls an operator that is not returned", "y = x * 2.0\nPOOL.submit(lambda: y.add_(1.0)).result()", "y = x * 2.0\nPOOL.submit(lambda: y.add_(2.0)).result()"),
    ("a thread is added", "y = x * 2.0", "y = x * 2.0\nPOOL.submit(lambda: y.add_(2.0)).result()"),
    ("a coroutine calls an operator", "async def f():\n    return x * 2.0\ny = asyncio.run(f())", "async def f():\n    return x * 3.0\ny = asyncio.run(f())"),
    ("a generator calls an operator", "y = next(x * i for i in (2.0, 3.0))", "y = next(x * i for i in (3.0, 2.0))"),
    ("a finalizer calls an operator", "y = x * 2.0\nz = Fin(lambda: y.add_(1.0))\ndel z", "y = x * 2.0\nz = Fin(lambda: y.add_(2.0))\ndel z"),
    ("a scripted function", "y = torch.jit.script(two)(x)", "y = torch.jit.script(three)(x)"),
    ("a scripted function that is there", "y = TWO(x)", "y = THREE(x)"),
    ("a traced function", "y = TRACED2(x)", "y = TRACED3(x)"),
    ("a fork of TorchScript", "y = torch.jit.wait(torch.jit.fork(two, x))", "y = torch.jit.wait(torch.jit.fork(three, x))"),
    ("a graph module of fx", "y = GM2(x)", "y = GM3(x)"),
    ("an exported module", "y = EP2(x)", "y = EP3(x)"),
    ("NumPy's functions on a constant", "y = x * torch.from_numpy(numpy.arange(4.0) * 2)", "y = x * torch.from_numpy(numpy.arange(4.0) * 3)"),
    ("a buffer of bytes", "y = x * torch.frombuffer(bytearray(b'\\x00\\x00\\x80\\x3f' * 4), dtype=torch.float32)", "y = x * torch.frombuffer(bytearray(b'\\x00\\x00\\x00\\x40' * 4), dtype=torch.float32)"),
    ("a tensor that is made with no mode", "with torch.utils._python_dispatch._disable_current_modes():\n    w = torch.ones(4) * 2\ny = x * w", "with torch.utils._python_dispatch._disable_current_modes():\n    w = torch.ones(4) * 3\ny = x * w"),
    ("unset fake mode", "with unset_fake_temporarily():\n    w = torch.ones(4) * 2\ny = x * w", "with unset_fake_temporarily():\n    w = torch.ones(4) * 3\ny = x * w"),
    ("no mode of functions", "with torch._C.DisableTorchFunction():\n    y = x * 2", "with torch._C.DisableTorchFunction():\n    y = x * 3"),
    ("a constant's list that is caught", "try:\n    k = 2.0 if self.t.tolist()[0] > 0 else 2.0\nexcept Exception:\n    k = 2.0\ny = x * k", "try:\n    k = 3.0 if self.t.tolist()[0] > 0 else 3.0\nexcept Exception:\n    k = 2.0\ny = x * k"),
    ("a pickle that is caught", "try:\n    k = 2.0 if pickle.dumps(x) else 2.0\nexcept Exception:\n    k = 2.0\ny = x * k", "try:\n    k = 3.0 if pickle.dumps(x) else 3.0\nexcept Exception:\n    k = 2.0\ny = x * k"),
    ("names of dimensions that are caught", "try:\n    k = 2.0 if x.names else 2.0\nexcept Exception:\n    k = 2.0\ny = x * k", "try:\n    k = 3.0 if x.names else 3.0\nexcept Exception:\n    k = 2.0\ny = x * k"),
    ("an operator that does not exist is caught", "try:\n    y = torch.ops.own9.nothing(x)\nexcept AttributeError:\n    y = x * 2", "try:\n    y = torch.ops.aten.relu(x)\nexcept AttributeError:\n    y = x * 2"),
):
    _add(f"hidden: {_doc}", _model(f"{_old}\nreturn y", "self.t = torch.ones(5, 4)\nself.u = torch.ones(4, 4)", """
     import asyncio, concurrent.futures, contextlib, copy, numpy, pickle, weakref
     from torch._subclasses.fake_tensor import unset_fake_temporarily
     POOL = concurrent.futures.ThreadPoolExecutor(1)
     class Quiet:
         def __enter__(self):
             return self
         def __exit__(self, *a):
             return True
     class Fin:
         def __init__(self, f):
             self.f = f
         def __del__(self):
             self.f()
     def two(a):
         return a * 2.0
     def three(a):
         return a * 3.0
     class Mod(nn.Module):
         def __init__(self, f):
             super().__init__()
             self.f = f
         def forward(self, a):
             return self.f(a)
     TWO, THREE = torch.jit.script(two), torch.jit.script(three)
     X = torch.ones(3, 4)
     TRACED2, TRACED3 = torch.jit.trace(two, X), torch.jit.trace(three, X)
     GM2, GM3 = torch.fx.symbolic_trace(Mod(two)), torch.fx.symbolic_trace(Mod(three))
     EP2, EP3 = torch.export.export(Mod(two), (X,)).module(), torch.export.export(Mod(three), (X,)).module()
     """), "", ("\n".join(" " * 8 + line for line in _old.split("\n")), "\n".join(" " * 8 + line for line in _new.split("\n"))))

# 11. Hyperparameters of torch's layers.

for _doc, _init, _forward, _change in (
    ("LSTM's direction", "self.m = nn.LSTM(4, 4, bidirectional=True)", "self.m(x)[0]", "model.m = torch.nn.LSTM(4, 4).eval()"), ("LSTM's batch", "self.m = nn.LSTM(4, 4)", "self.m(x[None])[0]", "model.m.batch_first = True"), ("LSTM's state", "self.m = nn.LSTM(4, 4)", "self.m(x)[1][0]", "type(model).forward = lambda s, x: s.m(x)[1][1]"), ("GRU for RNN", "self.m = nn.RNN(4, 4)", "self.m(x)[0]", "model.m = torch.nn.GRU(4, 4).eval()"), ("RNN's nonlinearity", "self.m = nn.RNN(4, 4)", "self.m(x)[0]", "model.m.mode = 'RNN_RELU'"),
    ("LSTM's dropout in eval mode", "self.m = nn.LSTM(4, 4, 2)", "self.m(x)[0]", "model.m.dropout = 0.5"), ("an embedding's padding", "self.m = nn.Embedding(5, 4)", "self.m(torch.tensor([1, 2]))", "model.m.padding_idx = 1"), ("an embedding's norm", "self.m = nn.Embedding(5, 4)", "self.m(torch.tensor([1, 2]))", "model.m.max_norm = 0.5"), ("an embedding bag's mode", "self.m = nn.EmbeddingBag(5, 4)", "self.m(torch.tensor([[1, 2]]))", "model.m.mode = 'sum'"), ("attention's weights", "self.m = nn.MultiheadAttention(4, 2)", "self.m(x, x, x)", "type(model).forward = lambda s, x: s.m(x, x, x, need_weights=False)"),
    ("attention's average", "self.m = nn.MultiheadAttention(4, 2)", "self.m(x, x, x)[1]", "type(model).forward = lambda s, x: s.m(x, x, x, average_attn_weights=False)[1]"), ("attention's heads", "self.m = nn.MultiheadAttention(4, 2)", "self.m(x, x, x)[0]", "model.m.num_heads = 4; model.m.head_dim = 1"), ("an encoder's norm_first", "self.m = nn.TransformerEncoderLayer(4, 2, 8)", "self.m(x)", "model.m.norm_first = True"), ("an encoder's activation", "self.m = nn.TransformerEncoderLayer(4, 2, 8)", "self.m(x)", "model.m.activation = torch.nn.functional.gelu; model.m.activation_relu_or_gelu = 2"),
    ("an encoder's fast path is off", "self.m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)", "self.m(x[None])", "torch.backends.mha.set_fastpath_enabled(False)"), ("an encoder's fast path is off, without gradients", "self.m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).requires_grad_(False)", "self.m(x[None])", "torch.backends.mha.set_fastpath_enabled(False)"), ("the fast path is asked for and off", "pass", "x * (2.0 if torch.backends.mha.get_fastpath_enabled() else 3.0)", "torch.backends.mha.set_fastpath_enabled(False)"),
    ("a convolution's stride", "self.m = nn.Conv1d(3, 2, 1)", "self.m(x[None])", "model.m.stride = (2,)"), ("a convolution's padding", "self.m = nn.Conv1d(3, 2, 1)", "self.m(x[None])", "model.m.padding = (1,)"), ("a convolution's mode of padding", "self.m = nn.Conv1d(3, 2, 3, padding=1)", "self.m(x[None])", "model.m.padding_mode = 'circular'; model.m._reversed_padding_repeated_twice = [1, 1]"), ("a convolution's groups", "self.m = nn.Conv1d(4, 4, 1)", "self.m(x.t()[None])", "model.m.groups = 2; model.m.weight = torch.nn.Parameter(torch.ones(4, 2, 1))"), ("a pool's size", "self.m = nn.MaxPool1d(2)", "self.m(x[None])", "model.m.kernel_size = 3"),
    ("a pool's indices", "self.m = nn.MaxPool1d(2)", "self.m(x[None])", "model.m.return_indices = True"), ("a pool's ceil_mode", "self.m = nn.MaxPool1d(3)", "self.m(x[None])", "model.m.ceil_mode = True"), ("a slope", "self.m = nn.LeakyReLU(0.1)", "self.m(x - 3)", "model.m.negative_slope = 0.2"), ("in place", "self.m = nn.ReLU()", "self.m(x - 3)", "model.m.inplace = True"), ("in place on the input", "self.m = nn.ReLU()", "self.m(x)", "model.m.inplace = True"), ("a threshold", "self.m = nn.Threshold(1.0, 0.0)", "self.m(x)", "model.m.threshold = 2.0"),
    ("a softmax's axis", "self.m = nn.Softmax(0)", "self.m(x)", "model.m.dim = 1"), ("an upsampling's mode", "self.m = nn.Upsample(scale_factor=2)", "self.m(x[None])", "model.m.mode = 'linear'"), ("a normalization's groups", "self.m = nn.GroupNorm(1, 4)", "self.m(x)", "model.m.num_groups = 2"), ("an instance's statistics", "self.m = nn.InstanceNorm1d(4)", "self.m(x[None].transpose(1, 2))", "model.m.eps = 0.1"), ("RMSNorm's epsilon", "self.m = nn.RMSNorm(4)", "self.m(x)", "model.m.eps = 0.1"), ("a loss's reduction", "self.m = nn.MSELoss()", "self.m(x, x * 2)", "model.m.reduction = 'sum'"),
    ("a loss's smoothing", "self.m = nn.CrossEntropyLoss()", "self.m(x, torch.tensor([0, 1, 2]))", "model.m.label_smoothing = 0.1"), ("a flatten's start", "self.m = nn.Flatten(1)", "self.m(x[None])", "model.m.start_dim = 0"), ("an unflatten's sizes", "self.m = nn.Unflatten(1, (2, 2))", "self.m(x)", "model.m.unflattened_size = (4, 1)"), ("a pixel shuffle's factor", "self.m = nn.PixelShuffle(2)", "self.m(x.view(1, 4, 3, 1))", "model.m.upscale_factor = 1"), ("a Sequential's order", "self.m = nn.Sequential(nn.ReLU(), nn.Tanh())", "self.m(x)", "model.m[0], model.m[1] = model.m[1], model.m[0]"),
    ("a norm of fft", "self.n = 'ortho'", "torch.fft.fft(x, norm=self.n).real", "model.n = 'forward'"), ("a kind of svd", "self.n = False", "torch.linalg.svd(x, full_matrices=self.n)[2]", "model.n = True"), ("a norm's order", "self.n = 2", "torch.linalg.vector_norm(x, self.n)", "model.n = 3"), ("a mode of grid_sample", "self.n = 'bilinear'", "F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2) + 0.3, mode=self.n, align_corners=False)", "model.n = 'nearest'"), ("one_hot's classes", "self.n = 4", "F.one_hot(torch.tensor([0, 2]), self.n)", "model.n = 5"), ("a quantile's interpolation", "self.n = 'linear'", "x.quantile(0.3, interpolation=self.n)", "model.n = 'lower'"),
    ("a state_dict hook drops a weight", "pass", "self.lin(x)", "model.register_state_dict_post_hook(lambda m, s, p, l: s.pop('lin.bias') is None or None)"), ("a state_dict hook renames a weight", "pass", "self.lin(x)", "model.register_state_dict_post_hook(lambda m, s, p, l: s.update(other=s.pop('lin.bias')))"), ("named_parameters is replaced", "pass", "self.lin(x)", "n = type(model).named_parameters\ntype(model).named_parameters = lambda s, *a, **k: reversed(list(n(s, *a, **k)))"), ("a graph is edited and not recompiled", "self.m = torch.fx.symbolic_trace(nn.ReLU())", "self.m(x - 3)", "n = list(model.m.graph.nodes)[1]; n.target = 'nothing'"), ("a graph is edited and recompiled", "self.m = torch.fx.symbolic_trace(nn.ReLU6())", "self.m(x)", "n = list(model.m.graph.nodes)[1]; model.m.graph.erase_node(list(model.m.graph.nodes)[-1]); model.m.graph.output(n.args[0]); model.m.recompile()"),
):
    _add(f"layers: {_doc}", _model(_forward, _init), _change)
for _doc, _before, _after in (("A", "a", "b"), ("B", "b", "a")):
    _add(f"results: a registered class is flattened in another order, {_doc}", _model("y = self.lin(x)\nreturn Pair(y, y * 2)", "pass", """
     class Pair:
         def __init__(self, a, b):
             self.a, self.b = a, b
     torch.utils._pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], 'one'), lambda v, c: Pair(*v), serialized_type_name='app.Pair')
     """), "", ("[p.a, p.b]", "[p.b, p.a]") if _doc == "A" else ("'one'", "'two'"))
for _n in range(2, 7):
    _add(f"harmless: {_n + 1} versions of a number in turn", _model("x * self.by", "self.by = 2.0"), f"""
     import trtcache
     for by in range(3, {_n + 3}):
         model.by = float(by)
         trtcache.compile(model, args, backend="stored", name="Model", direct="on", cache="cache-other")
     model.by = 2.0
     """, harmless=True)

# 12. Memory that is shared, and what forward switches.

for _doc, _question, _before in (
    ("whether a weak reference to a storage is equal", "StorageWeakRef(y.untyped_storage()) == StorageWeakRef(x.untyped_storage())", "y = x[1:]"), ("whether a detached result shares memory", "y.untyped_storage()._cdata == z.untyped_storage()._cdata", "z = x * 2\ny = z.detach()"), ("whether a result is an alias", "torch._C._is_alias_of(y, x)", "y = x.view(-1)"), ("whether a transposed weight shares memory", "y.untyped_storage()._cdata == self.lin.weight.untyped_storage()._cdata", "y = self.lin.weight.t()"),
    ("whether reshape copied", "y.untyped_storage()._cdata != x.untyped_storage()._cdata", "y = x.t().reshape(-1)"), ("whether a contiguous tensor shares memory", "y.untyped_storage()._cdata == x.untyped_storage()._cdata", "y = x.contiguous()"), ("whether chunks share memory", "y.untyped_storage()._cdata == z.untyped_storage()._cdata", "y, z = (x * 2).chunk(2, 1)"), ("whether unbound rows share memory", "y.untyped_storage()._cdata == z.untyped_storage()._cdata", "y, z, _ = x.unbind()"), ("whether a storage is in a set", "y.untyped_storage()._cdata in {x.untyped_storage()._cdata}", "y = x.expand(2, 3, 4)"),
    ("the size of a storage that was freed", "z.untyped_storage().nbytes() == 0", "z = x * 2\ny = z * 2\nz.untyped_storage().resize_(0)"), ("whether real and imaginary parts share memory", "y.untyped_storage()._cdata == z.untyped_storage()._cdata", "z = torch.view_as_complex(x.view(3, 2, 2) * 1)\ny = torch.view_as_real(z)"), ("whether a view in another dtype shares memory", "y.untyped_storage()._cdata == z.untyped_storage()._cdata", "z = x * 1\ny = z.view(torch.int32)"), ("whether a tensor is set to another", "y.is_set_to(z)", "z = x * 2\ny = z.view(3, 4)"),
):
    _ask(_doc, _question, _before, top="from torch.multiprocessing.reductions import StorageWeakRef\n")
for _doc, _switch in (
    ("gradients off", "torch.set_grad_enabled(False)"), ("gradients on in training only", "torch.set_grad_enabled(self.training)"), ("autocast's dtype", "torch.set_autocast_dtype('cpu', torch.float16)"), ("deterministic algorithms on", "torch.use_deterministic_algorithms(True)"), ("the default dtype", "torch.set_default_dtype(torch.float64)"), ("the default device", "torch.set_default_device('cpu')"), ("the precision of matmul", "torch.set_float32_matmul_precision('high')"), ("filters of warnings", "import warnings\nwarnings.simplefilter('ignore')"), ("anomaly detection", "torch.autograd.set_detect_anomaly(True)"), ("a seed", "torch.manual_seed(3)"), ("inference mode", "kept = torch.inference_mode()\nkept.__enter__()"), ("the cache of autocast", "torch.set_autocast_cache_enabled(False)"), ("the fast path of attention", "torch.backends.mha.set_fastpath_enabled(False)"), ("a global hook", "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: None)"), ("a hook of its own", "self.lin.register_forward_hook(lambda m, a, o: o * 2)"), ("garbage collection", "import gc\ngc.disable()"), ("multithreaded gradients", "torch.autograd.set_multithreading_enabled(False)"),
):
    _add(f"forward switches {_doc}", _model(f"y = self.lin(x)\n{_switch}\nreturn y"), "", harmless=_doc not in ("autocast's dtype", "deterministic algorithms on", "the default dtype"))  # these stay on after an export, too
    _add(f"forward switches {_doc} no longer", _model(f"y = self.lin(x)\n{_switch}\nreturn y"), "", (_switch.replace("\n", "\n        "), "pass"))
for _doc, _old, _new in (("True", "{1: y}", "{True: y}"), ("1.0", "{1: y}", "{1.0: y}"), ("an enum's member", "{1: y}", "{E.A: y}"), ("a nested True", "[{1: y}]", "[{True: y}]"), ("an int's subclass", "{2: y}", "{I(2): y}"), ("False", "{0: y, 2: y}", "{False: y, 2: y}"), ("a text's subclass", "{'a': y}", "{T('a'): y}"), ("an OrderedDict's True", "collections.OrderedDict({1: y})", "collections.OrderedDict({True: y})"), ("a negative zero", "{0.0: y}", "{-0.0: y}")):
    _add(f"results: a key is {_doc}", _model(f"y = self.lin(x)\nreturn {_old}", "pass", "import collections, enum\nclass E(enum.IntEnum):\n    A = 1\nclass I(int): pass\nclass T(str): pass"), "", (_old, _new))
for _doc, _old, _new in (("True", "{1: a}", "{True: a}"), ("1.0", "{1: a}", "{1.0: a}"), ("an enum's member", "{1: a}", "{E.A: a}"), ("False", "{0: a, 2: a}", "{False: a, 2: a}"), ("an int's subclass", "{2: a}", "{I(2): a}")):
    _add(f"arguments: a key is {_doc}", _model("x[next(iter(x))] * (2 if type(next(iter(x))) is int else 3)", "pass", "import collections, enum\nclass E(enum.IntEnum):\n    A = 1\nclass I(int): pass"), f"args = ({_new.replace('E.', 'app.E.').replace('I(', 'app.I(').replace(': a', ': torch.ones(4)')},)", first=f"args = ({_old.replace(': a', ': torch.ones(4)')},)\n")
_ask("the fast path's switch, which is off", "torch.backends.mha.get_fastpath_enabled()", first="torch.backends.mha.set_fastpath_enabled(False)\n")
