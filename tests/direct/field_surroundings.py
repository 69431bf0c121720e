"""What an export does around forward that a replay does not. They are added to ``field_scenarios``."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

_EDIT = ("return x * 2\n", "return x * 2 * 1\n")


def _edit(doc: str, before: str, after: str, init: str = "pass", top: str = "", **more: object) -> None:
    """Add a scenario: the statements of forward are edited."""
    a, b = _model(before, init, top), _model(after, init, top)
    _add(doc, a, "", (a, b), **more)


# Modules that raise
_FAST = "self.fast, self.slow = Fast(), Slow()"
_FASTS = """
class Fast(nn.Module):
    def forward(self, x):
        raise NotImplementedError
class Slow(nn.Module):
    def forward(self, x):
        return x * 2
"""
_edit("a fast layer that is not implemented is tried first, and caught", "return self.slow(x)",
      "try:\n    return self.fast(x)\nexcept NotImplementedError:\n    return self.slow(x)", _FAST, _FASTS)
_edit("features are taken by a hook that stops the backbone with an exception", """
      x = self.body[0](x)
      return x
      """, """
      try:
          self.body(x)
      except Stop as stop:
          x = stop.args[0]
      return x
      """, """
      self.body = nn.Sequential(nn.ReLU(), nn.Tanh())
      def stop(module, args, output):
          raise Stop(output)
      self.stop = stop
      """, "class Stop(Exception):\n    pass", make="import app\nmodel = app.Model().eval()\n")
_add("a hook stops the backbone with an exception", _model("""
     try:
         y = self.body(x)
     except Stop as stop:
         y = stop.args[0]
     return y
     """, "self.body = nn.Sequential(nn.ReLU())", "class Stop(Exception):\n    pass"), """
     def stop(module, args, output):
         raise app.Stop(output)
     model.body[0].register_forward_hook(stop)
     """)
_edit("an early exit of a nested layer is an exception that the model catches", "return self.slow(x) + 1", """
      try:
          y = self.slow(x)
          self.fast(y)
      except NotImplementedError:
          pass
      return y + 1
      """, _FAST, _FASTS)
_edit("hasattr asks a property that calls a layer, which raises", "return self.slow(x)",
      "hasattr(self, 'speed')\nreturn self.slow(x)", _FAST,
      _FASTS + "\nclass Speed:\n    pass\nnn.Module.speed_ = None\n")

# Functions of torch.fx
_add("a wrapped helper is renamed, and its name in torch.fx.wrap is forgotten", _model("x * 2", top="""
     import torch.fx
     def helper(x):
         return len(x)
     torch.fx.wrap("helper")
     """), "", ("def helper", "def length"))
_add("a wrapped helper is deleted from its file", _model("x * 2", top="""
     import torch.fx
     @torch.fx.wrap
     def helper(x):
         return len(x)
     """), "del app.helper")
_edit("a wrapped helper is compared with the one in a registry", "x * 2", "x * (2 if helper is KNOWN['helper'] else 3)", top="""
     import torch.fx
     @torch.fx.wrap
     def helper(x):
         return len(x)
     KNOWN = {'helper': helper}
     """)
_edit("a wrapped builtin is looked for among the names of the file", "x * 2", "x * (3 if 'len' in globals() else 2)",
      top="import torch.fx\ntorch.fx.wrap('len')")
_add("a traced model's graph is changed, and not recompiled", _model("x * 2"), """
     for node in model.graph.nodes:
         if node.op == "call_function":
             node.args = (node.args[0], 3)
     """, make="import app\nimport torch.fx\nmodel = torch.fx.symbolic_trace(app.Model().eval())\n")
_add("a traced model's method forward is replaced by its source", _model("x * 2"), """
     for node in model.graph.nodes:
         if node.op == "call_function":
             node.args = (node.args[0], 3)
     old = type(model).forward
     model.recompile()
     import types
     model.forward = types.MethodType(old, model)
     """, make="import app\nimport torch.fx\nmodel = torch.fx.symbolic_trace(app.Model().eval())\n")
_add("a traced model gets a hook of the last result that returns nothing else", _model("x * 2"),
     "model.register_forward_hook(lambda m, a, o: o)", harmless=True,
     make="import app\nimport torch.fx\nmodel = torch.fx.symbolic_trace(app.Model().eval())\n")
_add("a hook of a traced model doubles, and the graph does not", _model("x * 2"), """
     for node in model.graph.nodes:
         if node.op == "call_function":
             node.target = lambda x, by: x
             model.recompile()
             break
     model.register_forward_hook(lambda m, a, o: o * 2)
     """, make="import app\nimport torch.fx\nmodel = torch.fx.symbolic_trace(app.Model().eval())\n")
_add("a module's class that derives from a traced one overrides forward", _model("x * 2"), """
     class Mine(type(model)):
         def forward(self, x):
             return x * 2
     import torch.fx
     other = torch.fx.symbolic_trace(app.Model())
     for node in other.graph.nodes:
         if node.op == "call_function":
             node.args = (node.args[0], 3)
     class Mine(torch.fx.GraphModule):
         def forward(self, x):
             return x * 2
     model = Mine(other, other.graph)
     type(model).forward = lambda self, x: x * 2
     """)

# Functions of torch.nn.Module
_edit("a layer's __call__ is compared with that of the import", "x * 2", "x * (2 if nn.Module.__call__ is CALL else 3)", top="CALL = nn.Module.__call__")
_edit("a layer's class is asked whether it overrides __call__", "self.act(x) * 2", "self.act(x) * (2 if type(self.act).__call__ is CALL else 3)",
      "self.act = nn.ReLU()", "CALL = nn.Module.__call__")
_edit("the name of Module.__call__ in its code is asked for", "x * 2", "x * (2 if '_wrapped_call' in nn.Module.__call__.__code__.co_name else 3)")
_edit("Module.__getattr__ is compared with that of the import", "x * 2", "x * (2 if nn.Module.__getattr__ is GET else 3)", top="GET = nn.Module.__getattr__")

# Constants as numbers
_edit("a flag becomes a tensor of the file, which is asked for its truth", "x * (2 if FLAG else 3)", "x * (2 if FLAGS else 3)",
      top="FLAG = True\nFLAGS = torch.tensor(True)")
_edit("a flag becomes a plain tensor attribute", "x * (2 if self.flag else 3)", "x * (2 if self.flags else 3)",
      "self.flag = True\nself.flags = torch.tensor(True)")
_add("a flag is replaced by a tensor", _model("x * (2 if self.flag else 3)", "self.flag = True"), "model.flag = torch.tensor(True)")
_add("a flag is replaced by a NumPy truth value", _model("x * (2 if self.flag else 3)", "self.flag = True"), "import numpy\nmodel.flag = numpy.bool_(True)", harmless=True)
_add("a count is replaced by an integer tensor, and compared", _model("x * (2 if self.n > 1 else 3)", "self.n = 2"), "model.n = torch.tensor(2)")
_add("a count is replaced by an integer tensor that a loop runs to", _model("for _ in range(self.n):\n    x = x * 2\nreturn x", "self.n = 2"), "model.n = torch.tensor(2)")
_add("a rate is replaced by a tensor that float reads", _model("x * float(self.n)", "self.n = 2.0"), "model.n = torch.tensor(2.0)")
_add("a rate is replaced by a tensor whose item is read", _model("x * (self.n.item() if hasattr(self.n, 'item') else self.n)", "self.n = 2.0"), "model.n = torch.tensor(2.0)")
_add("a size is replaced by a tensor whose item is read", _model("x.repeat(self.n.item() if hasattr(self.n, 'item') else self.n, 1)", "self.n = 2"), "model.n = torch.tensor(2)")
_add("a size is replaced by an integer tensor", _model("x.repeat(int(self.n), 1)", "self.n = 2"), "model.n = torch.tensor(2)")
_add("a size is replaced by an integer tensor that is an index", _model("x.repeat([1, 2, 3][self.n], 1)", "self.n = 1"), "model.n = torch.tensor(1)")
_add("an axis is replaced by an integer tensor", _model("x.sum(dim=int(self.n))", "self.n = 1"), "model.n = torch.tensor(1)")
_add("layers are selected by an integer tensor", _model("[torch.relu, torch.tanh][self.n](x)", "self.n = 1"), "model.n = torch.tensor(1)")
_add("a limit of a branch on a size is a tensor", _model("x * (2 if x.shape[0] > int(self.n) else 3)", "self.n = 1"), "model.n = torch.tensor(1)")
_add("a list of sizes comes from tolist of a tensor", _model("x.view(*(self.s.tolist() if hasattr(self.s, 'tolist') else self.s))", "self.s = [4, 3]"), "model.s = torch.tensor([4, 3])")
_add("a scale is a constant that requires a gradient", _model("x * self.t[0]", "self.t = [torch.full((4,), 2.0)]"), "model.t[0].requires_grad_()")
_add("a scale in a list becomes an unregistered parameter", _model("x * self.t[0]", "self.t = [torch.full((4,), 2.0)]"), "model.t[0] = torch.nn.Parameter(model.t[0])")
_add("a cached product of the weight is kept with its gradient", _model("x @ self.t", "self.t = (self.lin.weight * 2).detach()"), "model.t = (model.lin.weight * 2)")
_add("a cached product of the weight in a list is kept with its gradient", _model("x @ self.t[0]", "self.t = [(self.lin.weight * 2).detach()]"), "model.t = [model.lin.weight * 2]")
_add("a constant is made in inference mode", _model("x * self.t", "self.t = torch.full((4,), 2.0)"), "with torch.inference_mode():\n    model.t = torch.full((4,), 2.0)")
_add("a constant in a list is made in inference mode", _model("x * self.t[0]", "self.t = [torch.full((4,), 2.0)]"), "with torch.inference_mode():\n    model.t = [torch.full((4,), 2.0)]")
_add("a constant is a view of a larger tensor", _model("x * self.t", "self.t = torch.full((4,), 2.0)"), "model.t = torch.full((8,), 2.0)[2:6]", harmless=True)
_add("a constant gets a hook of its gradient", _model("x * self.t", "self.t = torch.full((4,), 2.0, requires_grad=True)"), "model.t.register_hook(lambda g: g)")
_add("a constant is a parameter with a name of its own outside of the model", _model("x * T[0]", top="T = [torch.full((4,), 2.0)]"), "app.T[0] = torch.nn.Parameter(app.T[0])")

# Results that are their arguments
_edit("torch.dropout's result is compared with its input", "torch.dropout(x, 0.5, False) * 2", "y = torch.dropout(x, 0.5, False)\nreturn y * (2 if y is x else 3)")
_edit("torch.dropout's result is changed in place, and asked for its version", "y = torch.dropout(x, 0.5, False)\nreturn y.mul(2) + x", "y = torch.dropout(x, 0.5, False)\nreturn y.mul(2) + (x if y is x else y * 2)")
_edit("an in-place dropout's result is compared with its input", "y = F.dropout(x, 0.5, False, inplace=True)\nreturn y * 3", "y = F.dropout(x, 0.5, False, inplace=True)\nreturn y * (2 if y is x else 3)")
_edit("an in-place dropout layer's result is compared with its input", "y = self.d(x)\nreturn y * 3", "y = self.d(x)\nreturn y * (2 if y is x else 3)", "self.d = nn.Dropout(0.5, inplace=True)")
_edit("dropout's result is asked whether it is a view", "y = F.dropout(x, 0.5, False)\nreturn y * 2", "y = F.dropout(x, 0.5, False)\nreturn y * (2 if y._is_view() else 3)")
_edit("strides of a group norm's result decide", "y = F.group_norm(x.view(1, 3, 2, 2).to(memory_format=torch.channels_last), 1)\nreturn y * 2",
      "y = F.group_norm(x.view(1, 3, 2, 2).to(memory_format=torch.channels_last), 1)\nreturn y * (2 if y.stride()[0] < 12 else 3)")

# Regions
_edit("autocast is entered and not left", "torch.relu(x)", "torch.autocast('cpu', torch.bfloat16).__enter__()\nreturn torch.relu(x)")
_edit("autocast is left before gradients are on again", "with torch.no_grad():\n    y = torch.relu(x)\nreturn y * 2",
      "g, a = torch.no_grad(), torch.autocast('cpu', torch.bfloat16)\ng.__enter__()\na.__enter__()\ny = torch.relu(x)\ng.__exit__(None, None, None)\na.__exit__(None, None, None)\nreturn y * 2")
_edit("autocast is nested in itself", "with torch.autocast('cpu', torch.bfloat16):\n    return x @ self.lin.weight",
      "with torch.autocast('cpu', torch.bfloat16):\n    with torch.autocast('cpu', torch.bfloat16):\n        return x @ self.lin.weight")
_edit("autocast is only around a view", "x.view(4, 3) * 2", "with torch.autocast('cpu', torch.bfloat16):\n    y = x.view(4, 3)\nreturn y * 2")
_edit("autocast is around nothing", "x * 2", "with torch.autocast('cpu', torch.bfloat16):\n    pass\nreturn x * 2")
_edit("an autocast context is entered twice", "torch.relu(x) * 2", "a = torch.autocast('cpu', torch.bfloat16)\nwith a:\n    y = torch.relu(x)\nwith a:\n    return y * 2")
_edit("an error leaves an autocast region, and is caught", "torch.relu(x) * 2", "try:\n    with torch.autocast('cpu', torch.bfloat16):\n        y = torch.relu(x)\n        raise KeyError\nexcept KeyError:\n    pass\nreturn y * 2")
_edit("autocast is for a device that is not there", "torch.relu(x) * 2", "with torch.autocast('cuda', torch.float16):\n    y = torch.relu(x)\nreturn y * 2")
_edit("autocast is around a layer as a decorator", "self.part(x) * 2", "torch.autocast('cpu', torch.bfloat16)(self.part)(x) * 2", "self.part = nn.ReLU()")
_edit("gradients are disabled around nothing", "x * 2", "with torch.no_grad():\n    pass\nreturn x * 2")
_edit("anomalies are detected for an operation", "torch.relu(x) * 2", "with torch.autograd.detect_anomaly():\n    y = torch.relu(x)\nreturn y * 2")
_edit("saved tensors are moved to the CPU", "torch.relu(x) * 2", "with torch.autograd.graph.save_on_cpu():\n    y = torch.relu(x)\nreturn y * 2")
_edit("saved tensors have hooks that do nothing", "torch.relu(self.lin.weight[0]) * 2", "with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):\n    y = torch.relu(self.lin.weight[0])\nreturn y * 2")
_edit("hooks of saved tensors are disabled", "torch.relu(x) * 2", "with torch.autograd.graph.disable_saved_tensors_hooks('no'):\n    y = torch.relu(x)\nreturn y * 2")
_edit("a level of forward derivatives is around", "torch.relu(x) * 2", "with torch.autograd.forward_ad.dual_level():\n    y = torch.relu(x)\nreturn y * 2")
_edit("gradients run in one thread", "torch.relu(x) * 2", "with torch.autograd.set_multithreading_enabled(False):\n    y = torch.relu(x)\nreturn y * 2")
_edit("operations are annotated for the exporter", "torch.relu(x) * 2", "import torch.fx.traceback as t\nwith t.annotate({'stage': 1}):\n    y = torch.relu(x)\nreturn y * 2")
_edit("the region is profiled", "torch.relu(x) * 2", "with torch.profiler.profile():\n    y = torch.relu(x)\nreturn y * 2")
_edit("a range of the ITT profiler is pushed", "torch.relu(x) * 2", "torch.autograd.profiler.emit_itt().__class__\nwith torch.profiler.record_function('r'):\n    y = torch.relu(x)\nreturn y * 2")
_edit("torch functions are disabled around an operation", "torch.relu(x) * 2", "with torch._C.DisableTorchFunction():\n    y = torch.relu(x)\nreturn y * 2")
_edit("functions of subclasses are disabled around an operation", "torch.relu(x) * 2", "with torch._C.DisableTorchFunctionSubclass():\n    y = torch.relu(x)\nreturn y * 2")
_edit("a mode of functions is around an operation", "torch.relu(x) * 2", "with Mode():\n    y = torch.relu(x)\nreturn y * 2",
      top="from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n        return f(*a, **(k or {}))")
_edit("a default device is set around an operation", "torch.relu(x) * 2", "with torch.device('cpu'):\n    y = torch.relu(x)\nreturn y * 2")
_edit("random numbers are forked around", "torch.relu(x) * 2", "with torch.random.fork_rng():\n    y = torch.relu(x)\nreturn y * 2")
_edit("warnings are caught around", "torch.relu(x) * 2", "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('error')\n    y = torch.relu(x)\nreturn y * 2")
_edit("inference mode is switched off in forward", "torch.relu(x) * 2", "with torch.inference_mode(False):\n    y = torch.relu(x)\nreturn y * 2")
_edit("the version counters are kept", "torch.relu(x) * 2", "with torch.autograd._unsafe_preserve_version_counter(x):\n    y = torch.relu(x)\nreturn y * 2")
_edit("Dynamo is disabled for a helper", "helper(x) * 2", "torch.compiler.disable(helper)(x) * 2", top="def helper(x):\n    return torch.relu(x)")
_edit("a helper is allowed in the graph", "helper(x) * 2", "torch.compiler.allow_in_graph(helper)(x) * 2", top="def helper(x):\n    return torch.relu(x)")
_edit("a helper is marked for non-strict tracing", "helper(x) * 2", "torch._dynamo.nonstrict_trace(helper)(x) * 2", top="def helper(x):\n    return torch.relu(x)")
_edit("a region is compiled by itself", "helper(x) * 2", "torch.compiler.nested_compile_region(helper)(x) * 2", top="def helper(x):\n    return torch.relu(x)")
_edit("a helper is assumed to be constant", "helper() * x", "torch.compiler.assume_constant_result(helper)() * x", top="def helper():\n    return 2.0")
_edit("the cudagraph step is marked", "torch.relu(x) * 2", "torch.compiler.cudagraph_mark_step_begin()\nreturn torch.relu(x) * 2")
_edit("a size of an intermediate result is marked dynamic", "y = torch.relu(x)\nreturn y * 2", "y = torch.relu(x)\ntorch._dynamo.mark_dynamic(y, 0)\nreturn y * 2")
_edit("the graph is broken by hand", "y = torch.relu(x)\nreturn y * 2", "y = torch.relu(x)\ntorch._dynamo.graph_break()\nreturn y * 2")
_edit("torch.compile's state is reset in forward", "torch.relu(x) * 2", "torch.compiler.reset()\nreturn torch.relu(x) * 2")

# Names and methods of modules that an export calls
for name, what in (("get_buffer", "a buffer"), ("get_parameter", "a parameter"), ("get_submodule", "a submodule"), ("buffers", "buffers"),
                   ("modules", "modules"), ("children", "children"), ("_named_members", "members"), ("_get_name", "its name"),
                   ("extra_repr", "its text"), ("get_extra_state", "its extra state"), ("_save_to_state_dict", "a state dict"), ("train", "its mode"),
                   ("register_buffer", "to register"), ("named_children", "children by name"), ("__len__", "its length"), ("__bool__", "its truth"), ("__iter__", "its items"),
                   ("__contains__", "whether it contains something"), ("__repr__", "its text by repr"), ("__dir__", "its names"), ("__getitem__", "an item"), ("__str__", "its text by str"),
                   ("__format__", "its format"), ("__reduce__", "to be pickled"), ("__deepcopy__", "to be copied"), ("__setattr__", "to be set"), ("__delattr__", "to be deleted"),
                   ("meta", "its meta"), ("graph", "its graph"), ("_forward_pre_hooks_x", "hooks")):
    for where in ("the model", "a layer"):
        owner = "Model" if where == "the model" else "Layer"
        text = _model("self.part(x) * 2 * self.b", "self.part = Layer()\nself.register_buffer('b', torch.ones(4), persistent=False)", "class Layer(nn.Module):\n    def forward(self, x):\n        return x + 1")
        change = f"def method(self, *args):\n    raise KeyError('{name}')\napp.{owner}.{name} = method"
        if name == "__setattr__":
            change = f"def method(self, name, value):\n    if name.startswith('_'):\n        raise KeyError(name)\n    torch.nn.Module.__setattr__(self, name, value)\napp.{owner}.{name} = method"
        _add(f"{where} has a method {name} that fails when it is asked for {what}", text, change)
_add("a layer without weights gets a name with an @", _model("self.parts[self.key](x)", "self.parts, self.key = nn.ModuleDict({KEY: nn.ReLU()}), KEY", "KEY = 'a'"), "", ("KEY = 'a'", "KEY = 'a@1'"), harmless=True)
_add("a layer without weights gets a name with spaces and quotes", _model("self.parts[self.key](x)", "self.parts, self.key = nn.ModuleDict({KEY: nn.ReLU()}), KEY", "KEY = 'a'"), "", ("KEY = 'a'", "KEY = 'a \\'b[0] \"'"), harmless=True)
_add("a layer with a constant gets a name with spaces and quotes", _model("self.parts[self.key](x)", "self.parts, self.key = nn.ModuleDict({KEY: Part()}), KEY",
     "KEY = 'a'\nclass Part(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.t = torch.full((4,), 2.0)\n    def forward(self, x):\n        return x * self.t"), "", ("KEY = 'a'", "KEY = 'a \\'b[0] \"'"), harmless=True)
_add("a constant of a layer has a name that is no word", _model("x * self.__dict__[NAME]", "self.__dict__[NAME] = torch.full((4,), 2.0)", "NAME = 't'"), "", ("NAME = 't'", "NAME = 't t-1'"), harmless=True)
_add("a constant of the model has a name with a dot", _model("x * self.__dict__[NAME]", "self.__dict__[NAME] = torch.full((4,), 2.0)", "NAME = 't'"), "", ("NAME = 't'", "NAME = 't.u'"), harmless=True)
_add("a constant of the model has a name with the name of a weight", _model("x * self.__dict__[NAME] + self.lin.weight[0]", "self.__dict__[NAME] = torch.full((4,), 2.0)", "NAME = 't'"), "", ("NAME = 't'", "NAME = 'lin.weight'"))
_add("a constant of the model has the name of a weight with an underscore", _model("x * self.__dict__[NAME] + self.lin.weight[0]", "self.__dict__[NAME] = torch.full((4,), 2.0)", "NAME = 't'"), "", ("NAME = 't'", "NAME = 'lin_weight'"), harmless=True)
_add("the key of an attribute's dict has a text that fails", _model("x * self.by[self.key]", "self.key = Key()\nself.by = {self.key: 2.0}", "class Key:\n    pass"), "def text(self):\n    return self.name\napp.Key.__repr__ = text")
_add("the key of an attribute's dict is a module whose text fails", _model("x * self.by[self.act]", "self.act = nn.ReLU()\nself.by = {self.act: 2.0}"), "class Act(torch.nn.ReLU):\n    def extra_repr(self):\n        return self.names\nmodel.act = Act()\nmodel.by = {model.act: 2.0}")
_add("the key of an attribute's dict is a named tuple with a failing text", _model("x * self.by[self.key]", "self.key = Key(1)\nself.by = {self.key: 2.0}", "from collections import namedtuple\nclass Key(namedtuple('Key', 'a')):\n    pass"), "def text(self):\n    return self.name\napp.Key.__repr__ = text")
_add("an attribute's item compares in a way that fails", _model("x * self.by[0].v", "self.by = [Item()]", "class Item:\n    v = 2.0"), "def equal(self, other):\n    raise TypeError\napp.Item.__eq__ = equal\napp.Item.__hash__ = None")
_add("a helper module in a list cannot be hashed", _model("self.parts[0](x)", "self.parts = [Part()]", "class Part(nn.Module):\n    def forward(self, x):\n        return x * 2"), "def equal(self, other):\n    return type(self) is type(other)\napp.Part.__eq__ = equal\napp.Part.__hash__ = None")
_add("a helper module that forward makes cannot be hashed", _model("Part()(x)", top="class Part(nn.Module):\n    def forward(self, x):\n        return x * 2"), "def equal(self, other):\n    return type(self) is type(other)\napp.Part.__eq__ = equal\napp.Part.__hash__ = None")
_add("a helper module in a list becomes a dataclass", _model("self.parts[0](x)", "self.parts = [Part()]", """
     import dataclasses
     @dataclasses.dataclass(eq=False)
     class Part(nn.Module):
         by: float = 2.0
         def __post_init__(self):
             super().__init__()
         def forward(self, x):
             return x * 2
     """), "", ("(eq=False)", ""))
_add("an unused layer is a dynamically quantized one", _model("x * 2"), "model.extra = torch.ao.nn.quantized.dynamic.Linear(4, 4)")
_add("an unused packed weight is an attribute", _model("x * 2"), "model.packed = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(torch.rand(4, 4), 0.1, 0, torch.qint8), None)")
_add("an unused packed weight is in a list", _model("x * 2"), "model.packed = [torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(torch.rand(4, 4), 0.1, 0, torch.qint8), None)]", harmless=True)
_add("an unused scripted layer is there", _model("x * 2"), "model.extra = torch.jit.script(torch.nn.ReLU())", harmless=True)
_add("an unused sparse tensor is an attribute", _model("x * 2"), "model.extra = torch.eye(3).to_sparse()", harmless=True)
_add("an unused quantized tensor is an attribute", _model("x * 2"), "model.extra = torch.quantize_per_tensor(torch.rand(4, 4), 0.1, 0, torch.qint8)", harmless=True)
_add("an unused nested tensor is an attribute", _model("x * 2"), "model.extra = torch.nested.nested_tensor([torch.rand(2)])", harmless=True)
_add("an unused tensor of a subclass that refuses functions is an attribute", _model("x * 2"), "class T(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *a, **k):\n        raise TypeError(str(a[0]))\nmodel.extra = torch.rand(2).as_subclass(T)")
_add("an unused fake tensor is an attribute", _model("x * 2"), "from torch._subclasses.fake_tensor import FakeTensorMode\nwith FakeTensorMode():\n    model.extra = torch.rand(2)")
_add("an unused meta tensor is an attribute", _model("x * 2"), "model.extra = torch.rand(2, device='meta')", harmless=True)
_add("an unused lazy parameter is in a list", _model("x * 2"), "model.extra = [torch.nn.UninitializedParameter()]", harmless=True)
_add("an attribute is a generator of random numbers", _model("x * 2"), "model.extra = torch.Generator()", harmless=True)
_add("an attribute is a stream or an event", _model("x * 2"), "model.extra = torch.Event()", harmless=True)
_add("an attribute is an exported program's module", _model("x * 2"), "model.extra = torch.export.export(torch.nn.ReLU(), args).module()", harmless=True)
_add("an attribute is a traced graph module with constants", _model("x * 2"), "import torch.fx\nmodel.extra = torch.fx.symbolic_trace(torch.nn.Linear(4, 4))\ndel model.extra.weight, model.extra.bias")
_add("an attribute is a compiled module", _model("x * 2"), "model.extra = torch.compile(torch.nn.ReLU(), backend='eager')", harmless=True)
_add("forward takes its argument by a star", _model("x * 2"), "", ("def forward(self, x):\n", "def forward(self, *x):\n        x, = x\n"))
_add("forward's argument is keyword or positional", _model("x * 2"), "", ("def forward(self, x):\n", "def forward(self, x, /):\n"), harmless=True)
_add("forward's other argument becomes one of any keywords", "class Model(nn.Module):\n    def forward(self, x, y=None):\n        return x * 2\n", "", ("y=None):\n", "**y):\n"))
_add("a name of forward's is given by keyword", "class Model(nn.Module):\n    def forward(self, x=None, **y):\n        return x * 2 + y['y']\n", "", ("x=None, **y):\n        return x * 2 + y['y']", "x=None, y=None):\n        return x * 2 + y"), first="kwargs = {'y': torch.ones(4)}\n")

# Calls of layers
_add("forward of a layer is an object that answers every attribute with None", _model("self.part(x)", "self.part = nn.ReLU()"), """
     class Call:
         def __call__(self, x):
             return torch.relu(x)
         def __getattr__(self, name):
             return None
     model.part.forward = Call()
     """)
_add("forward of a layer is an object that has no other attribute", _model("self.part(x)", "self.part = nn.ReLU()"), """
     class Call:
         def __call__(self, x):
             return torch.relu(x)
     model.part.forward = Call()
     """, harmless=True)
_add("forward of a layer is a partial", _model("self.part(x)", "self.part = nn.ReLU()"), "import functools\nmodel.part.forward = functools.partial(torch.relu)", harmless=True)
_add("forward of a layer is a builtin", _model("self.part(x)", "self.part = nn.ReLU()"), "model.part.forward = torch.relu", harmless=True)
_add("forward of a layer is compiled by torch", _model("self.part(x)", "self.part = nn.ReLU()"), "model.part.forward = torch.compile(model.part.forward, backend='eager')", harmless=True)
_add("forward of a layer is a property that counts", _model("self.part(x) * self.part.n", "self.part = Part()", "class Part(nn.Module):\n    n = 2\n    def forward(self, x):\n        return x + 1"), """
     forward = app.Part.forward
     def get(self):
         app.Part.n += 1
         return lambda x: forward(self, x)
     app.Part.forward = property(get)
     app.Part.n = 1
     """)
_add("a layer is nested in 150 wrappers", _model("self.part(x)", "self.part = nn.ReLU()"), "for _ in range(150):\n    model.part = torch.nn.Sequential(model.part)")
_add("a layer is nested in 60 wrappers", _model("self.part(x)", "self.part = nn.ReLU()"), "for _ in range(60):\n    model.part = torch.nn.Sequential(model.part)", harmless=True)
_add("a recursive function is 700 calls deep", _model("helper(x, 0)", top="def helper(x, n):\n    return x * 2 if n >= DEPTH else helper(x, n + 1)\nDEPTH = 5"), "app.DEPTH = 900")
_edit("a model counts the active function modes", "x * 2", "x * (2 if len(torch.overrides._get_current_function_mode_stack()) < 3 else 3)")
_edit("a model asks for Python's dispatcher", "x * 2", "x * (2 if not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PythonDispatcher) else 3)")
_edit("the class of the fake mode is asked for by its name", "x * 2", "x * (2 if type(x.fake_mode).__name__ != 'FakeTensorMode' else 3)")
_edit("a model reads static_shapes of the fake mode", "x * 2", "x * (2 if x.fake_mode.static_shapes else 3)")
_edit("a model reads the metadata that torch.fx records", "x * 2", "import torch.fx.traceback as t\nreturn x * (3 if t.get_current_meta() else 2)")
_edit("the depth of the stack is asked for", "x * 2", "import inspect\nreturn x * (3 if len(inspect.stack()) > 60 else 2)")
_edit("the callers are looked for in torch.fx", "x * 2", "import inspect\nreturn x * (3 if any('torch/fx' in f.filename for f in inspect.stack()) else 2)")
_edit("a model reads the flags of the exporter", "x * 2", "import torch.export._trace as t\nreturn x * (3 if t._EXPORT_FLAGS else 2)")
_edit("a filter of warnings is looked for", "x * 2", "import warnings\nreturn x * (3 if any('_flat_weights' in getattr(f[1], 'pattern', '') for f in warnings.filters) else 2)")
_edit("a gradient is computed by torch.func instead of by hand", "y = x * 3\nreturn (y.sum(), x + 1)[1]", "torch.func.grad(lambda r: (r * 3).sum())(x)\nreturn x + 1")
_edit("an unused derivative of the result is computed by hand", "x + 1", "torch.func.grad(lambda r: r.sum())(x)\nreturn x + 1")

# Second part
_edit("a keyword of a layer is called mod", "self.block(x, 2)", "self.block(x, mod=2)", "self.block = Block()", "class Block(nn.Module):\n    def forward(self, x, mod):\n        return x * mod")
_edit("a keyword of a layer is called module", "self.block(x, 2)", "self.block(x, module=2)", "self.block = Block()", "class Block(nn.Module):\n    def forward(self, x, module):\n        return x * module", harmless=True)
_edit("a keyword of a layer is called module, and there is a shared one", "self.block(self.act(x), 2)", "self.block(self.act(x), module=2)", "self.block = Block()\nself.act = self.act2 = nn.ReLU()", "class Block(nn.Module):\n    def forward(self, x, module):\n        return x * module", harmless=True)
_add("an argument of the model is called called", "class Model(nn.Module):\n    def forward(self, x, called):\n        return x * called\n", "", first="kwargs = {'called': torch.ones(4)}\n", harmless=True)
_add("an argument of the model is called mod", "class Model(nn.Module):\n    def forward(self, x, mod=None):\n        return x * 2\n", "", first="kwargs = {'mod': torch.ones(4)}\n")
_edit("an error of a layer is suppressed by contextlib", "return self.slow(x)", "import contextlib\nwith contextlib.suppress(NotImplementedError):\n    self.fast(x)\nreturn self.slow(x)", _FAST, _FASTS)
_edit("getattr's default replaces a property that calls a layer, which fails", "return self.slow(x)", "k = getattr(self.asker, 'speed', 1)\nreturn self.slow(x)", _FAST + "\nself.asker = Asker(self)",
      _FASTS + "\nclass Asker:\n    def __init__(self, m):\n        self.m = m\n    @property\n    def speed(self):\n        try:\n            return self.m.fast(None)\n        except NotImplementedError:\n            raise AttributeError")
_edit("an error of a layer outside of the model is caught", "return self.slow(x)", "try:\n    return self.parts[0](x)\nexcept NotImplementedError:\n    return self.slow(x)", _FAST + "\nself.parts = [Fast()]", _FASTS, harmless=True)
_edit("an error of a layer's forward is caught, which is not called as a module", "return self.slow(x)", "try:\n    return self.fast.forward(x)\nexcept NotImplementedError:\n    return self.slow(x)", _FAST, _FASTS, harmless=True)
_edit("a layer catches the error of its own part", "return self.outer(x)", "return self.outer(x)", "self.outer = Outer()", "class Part(nn.Module):\n    def forward(self, x):\n        if WRONG:\n            raise KeyError\n        return x\nclass Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = Part()\n    def forward(self, x):\n        try:\n            self.part(x)\n        except KeyError:\n            pass\n        return x * 2\nWRONG = False")
_add("a part raises an error for this size, which its owner catches", _model("self.outer(x)", "self.outer = Outer()", "class Part(nn.Module):\n    def forward(self, x):\n        if WRONG:\n            raise KeyError\n        return x\nclass Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = Part()\n    def forward(self, x):\n        try:\n            self.part(x)\n        except KeyError:\n            pass\n        return x * 2\nWRONG = False"), "app.WRONG = True")
_add("a recurrent stack stops by an exception of the last layer", _model("""
     try:
         for layer in self.layers:
             x = layer(x)
     except StopIteration:
         pass
     return x
     """, "self.layers = nn.ModuleList([Layer(2), Layer(1)])", "class Layer(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.n = n\n    def forward(self, x):\n        if self.n < 1:\n            raise StopIteration\n        return x * self.n"), "model.layers.append(app.Layer(0))")
_edit("an integer constant is incremented and read", "self.n.add_(1)\nreturn x * 1", "self.n.add_(1)\nreturn x * int(self.n)", "self.n = torch.tensor(1)")
_edit("an integer constant in a list is incremented and read", "self.n[0].add_(1)\nreturn x * 1", "self.n[0].add_(1)\nreturn x * int(self.n[0])", "self.n = [torch.tensor(1)]")
_edit("an integer of the file is incremented and read", "N.add_(1)\nreturn x * 1", "N.add_(1)\nreturn x * int(N)", top="N = torch.tensor(1)")
_edit("an integer constant is incremented and read through an alias", "n = self.n\nn.add_(1)\nreturn x * 1", "n = self.n\nn.add_(1)\nreturn x * self.n.item()", "self.n = torch.tensor(1)")
_edit("the item of a new tensor is read", "n = torch.tensor(2)\nreturn x * 2", "n = torch.tensor(2)\nreturn x * n.item()")
_edit("a new tensor is changed, and its item is read", "n = torch.tensor(2)\nn.add_(1)\nreturn x * 3", "n = torch.tensor(2)\nn.add_(1)\nreturn x * n.item()")
_edit("a new tensor is asked for its truth", "n = torch.tensor(True)\nreturn x * 2", "n = torch.tensor(True)\nreturn x * (2 if n else 3)")
_edit("bool of a comparison of a size with a constant", "x * 2", "x * (2 if bool(torch.tensor(x.shape[0]) > 1) else 3)")
_edit("while asks a constant", "x * 2", "for _ in range(3):\n    if not FLAG:\n        break\nreturn x * 2", top="FLAG = torch.tensor(False)")
_edit("a constant is asserted", "x * 2", "assert FLAG\nreturn x * 2", top="FLAG = torch.tensor(True)")
_edit("not of a buffer's twin decides", "x * (2 if not self.a else 3)", "x * (2 if not self.b[0] else 3)", "self.a = False\nself.b = [torch.zeros(1)]")
_edit("and of a constant and a flag", "x * 2", "x * (2 if FLAG and self.training is False else 3)", top="FLAG = torch.ones(1)")
_edit("a constant of one element is an index of a dict of lists by int", "x * 2", "x * [1, 2][int(FLAG)]", top="FLAG = torch.ones(1)")
_edit("max of a constant and a number decides", "x * 2", "x * (2 if max(FLAG.item(), 0) else 3)", top="FLAG = torch.ones(1)")

# Containers
_DATA = """
import dataclasses
@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    n: int
torch.export.register_dataclass(Batch, serialized_type_name="field.new.Batch")
"""
_BATCH = "class Model(nn.Module):\n    def forward(self, x, batch):\n        return x * 2 + batch.x * batch.n\n"
_ARGS = "import app\nmodel = app.Model().eval()\nargs = (*args, app.Batch(torch.ones(4), 2))\n"
for what, check in (("asserts that its number is one", "assert isinstance(self.n, int)"), ("computes with its number", "self.half = self.n // 2"), ("compares its number", "assert self.n > 0"),
                    ("asserts that its tensor has one dimension", "assert self.x.dim() == 1"), ("asserts that its tensor is one", "assert isinstance(self.x, torch.Tensor)"), ("formats its number", "self.text = f'{self.n:d}'")):
    _add(f"an argument's dataclass {what}", _DATA + _BATCH, "", ("    n: int\n", f"    n: int\n    def __post_init__(self):\n        {check}\n"), make=_ARGS)
_add("an argument's dataclass has a flag that is checked", _DATA.replace("n: int", "n: bool") + _BATCH, "", ("    n: bool\n", "    n: bool\n    def __post_init__(self):\n        assert self.n in (True, False)\n"), make=_ARGS.replace(", 2)", ", True)"))
_OUT = """
class Out:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __iter__(self):
        return iter((self.x, self.y))
def flatten(o):
    return [o.x, o.y], None
torch.utils._pytree.register_pytree_node(Out, flatten, lambda v, c: Out(*v), serialized_type_name="field.new.Out")
class Model(nn.Module):
    def forward(self, x):
        return Out(x * 2, x * 3)
"""
_add("a result's class has another order while exporting", _OUT, "", ("    return [o.x, o.y], None", "    return ([o.y, o.x] if torch.compiler.is_exporting() else [o.x, o.y]), None"))
_add("a result's class is flattened by a function that asks whether torch compiles", _OUT, "", ("    return [o.x, o.y], None", "    return ([o.y, o.x] if torch.compiler.is_compiling() else [o.x, o.y]), None"))
_add("a result's class is flattened with the builtin max", _OUT.replace("x * 3)", "x * 3)").replace("[o.x, o.y], None", "[o.x, o.y], max(1, 2)"), "", ("max(1, 2)", "(2 if type(max).__name__ != 'partial' else 3)"))
_add("a result's class looks for the exporter among its callers", _OUT, "", ("    return [o.x, o.y], None", "    import inspect\n    return ([o.y, o.x] if any('export/_trace' in f.filename for f in inspect.stack()) else [o.x, o.y]), None"))
_add("a named tuple of the model has items by name", _model("x * self.size.h", "self.size = Size(2, 3)", "from collections import namedtuple\nclass Size(namedtuple('Size', 'h w')):\n    pass"),
     "def item(self, key):\n    return getattr(self, key)\napp.Size.__getitem__ = item")
_add("a named tuple of the model has a length of its own", _model("x * self.size.h", "self.size = Size(2, 3)", "from collections import namedtuple\nclass Size(namedtuple('Size', 'h w')):\n    pass"),
     "app.Size.__len__ = lambda self: self.h * self.w")
_add("a named tuple of the model checks types in its constructor", _model("x * self.size.h", "self.size = Size(2, 3)", "from collections import namedtuple\nclass Size(namedtuple('Size', 'h w')):\n    pass"),
     "def new(cls, h, w):\n    assert False\napp.Size.__new__ = new")
_add("a default dict of the model has a get of its own", _model("x * self.by['a']", "self.by = {'a': 2.0}"), "from collections import defaultdict\nclass D(defaultdict):\n    def get(self, *a):\n        raise KeyError\nmodel.by = D(float, a=2.0)", harmless=True)
_add("keys of a dict are of a type whose order fails", _model("x * self.by[1]", "self.by = {1: 2.0}"), "model.by = {1: 2.0, 'a': 3.0, None: 4.0}", harmless=True)
_add("keys of a dict are tensors", _model("x * self.by[1]", "self.by = {1: 2.0}"), "model.by = {1: 2.0, torch.ones(3): 3.0}", harmless=True)
_add("keys of a dict are weights", _model("x * self.by[1]", "self.by = {1: 2.0}"), "model.by = {1: 2.0, model.lin.weight: 3.0}", harmless=True)
_add("a registered dataclass of the model checks numbers", _DATA + "\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.cfg = Batch(torch.ones(2), 2)\n    def forward(self, x):\n        return x * self.cfg.n\n",
     "", ("    n: int\n", "    n: int\n    def __post_init__(self):\n        assert isinstance(self.n, int)\n"), harmless=True)

# Functions
_edit("a gradient is computed by torch.func", "y = x * 3\nreturn x + 1", "y = x * 3\nf = torch.func.vjp(lambda r: r, x)[1]\nreturn x + 1")
_edit("vmap is around a multiplication", "x * 2", "torch.vmap(lambda r: r * 2)(x)")
_edit("functionalize is around a multiplication", "x * 2", "torch.func.functionalize(lambda r: r * 2)(x)")
_edit("linearize is around", "x * 2", "torch.func.linearize(lambda r: r * 2, x)\nreturn x * 2")
_edit("jvp gives the result", "x * 2", "torch.func.jvp(lambda r: r * 2, (x,), (x,))[0]")
_edit("vjp gives the result", "x * 2", "torch.func.vjp(lambda r: r * 2, x)[0]")
_edit("grad_and_value gives the value", "(x * 2).sum()", "torch.func.grad_and_value(lambda r: (r * 2).sum())(x)[1]")
_edit("make_fx is called in forward", "x * 2", "from torch.fx.experimental.proxy_tensor import make_fx\nmake_fx(lambda r: r)(torch.ones(1))\nreturn x * 2")
_edit("symbolic_trace is called in forward", "x * 2", "torch.fx.symbolic_trace(nn.ReLU())\nreturn x * 2", top="import torch.fx")
_edit("a graph module is made in forward and called", "torch.relu(x) * 2", "torch.fx.symbolic_trace(nn.ReLU())(x) * 2", top="import torch.fx")
_edit("a function is scripted in forward", "torch.relu(x) * 2", "torch.jit.script(nn.ReLU())(x) * 2")
_edit("a function is traced by jit in forward", "torch.relu(x) * 2", "torch.jit.trace(nn.ReLU(), torch.ones(2))\nreturn torch.relu(x) * 2")
_edit("torch.compile is called in forward", "torch.relu(x) * 2", "torch.compile(nn.ReLU(), backend='eager')(x) * 2")
_edit("a fake mode of its own is entered in forward", "x * 2", "from torch._subclasses.fake_tensor import FakeTensorMode\nwith FakeTensorMode() as m:\n    t = torch.ones(2)\nreturn x * 2")
_edit("a meta model is built in forward to count its weights", "x * 8", "x * sum(p.numel() for p in nn.Linear(3, 2, device='meta').parameters())")
_edit("a model is built in forward to count its weights", "x * 8", "x * sum(p.numel() for p in nn.Linear(3, 2).parameters())")
_edit("a model is skipped in its initialization in forward", "x * 8", "x * sum(p.numel() for p in torch.nn.utils.skip_init(nn.Linear, 3, 2).parameters())")
_edit("a device mesh is asked for", "x * 2", "x * (3 if torch.distributed.is_initialized() else 2)")
_edit("a layer is copied in forward", "self.act(x) * 2", "import copy\nreturn copy.deepcopy(self.act)(x) * 2", "self.act = nn.ReLU()")
_edit("a shared layer is copied in forward", "self.act(x) * 2", "import copy\nreturn copy.copy(self.act)(x) * 2", "self.act = self.act2 = nn.ReLU()")
_edit("a shared layer is copied deeply in forward", "self.act(x) * 2", "import copy\nreturn copy.deepcopy(self.act)(x) * 2", "self.act = self.act2 = nn.ReLU()")
_edit("a shared layer is pickled in forward", "self.act(x) * 2", "import pickle\npickle.dumps(self.act)\nreturn self.act(x) * 2", "self.act = self.act2 = nn.ReLU()")
_edit("a shared layer is asked for its class's name in a registry by class", "self.act(x) * 2", "self.act(x) * {nn.ReLU: 2}.get(self.act.__class__, 3)", "self.act = self.act2 = nn.ReLU()")
_edit("a shared layer is put in a set", "self.act(x) * 2", "self.act(x) * (2 if len({self.act, self.act2}) == 1 else 3)", "self.act = self.act2 = nn.ReLU()")
_edit("a shared layer is taken from _modules", "self.act(x) * 2", "self.act(x) * (2 if self._modules['act'] is self.act else 3)", "self.act = self.act2 = nn.ReLU()")
_edit("a shared layer is applied by apply", "self.act(x) * 2", "self.act.apply(lambda m: None)\nreturn self.act(x) * 2", "self.act = self.act2 = nn.ReLU()", harmless=True)
_edit("a shared layer is put in training and back", "self.act(x) * 2", "self.act.train()\nself.act.eval()\nreturn self.act(x) * 2", "self.act = self.act2 = nn.ReLU()", harmless=True)
_edit("a shared layer gets an attribute", "self.act(x) * 2", "self.act.seen = 1\nreturn self.act(x) * 2 * self.act2.seen", "self.act = self.act2 = nn.ReLU()")
_edit("a shared layer is assigned to another name", "self.act(x) * 2", "self.act2 = self.act\nreturn self.act2(x) * 2", "self.act = self.act2 = nn.ReLU()", harmless=True)
_edit("slices of a shared list are called", "self.parts[0](x) * 2", "self.parts[0:1][0](x) * 2", "self.parts = self.parts2 = nn.ModuleList([nn.ReLU(), nn.Tanh()])", harmless=True)
_edit("a shared Sequential is sliced and called", "self.parts[0](x) * 2", "self.parts[:1](x) * 2", "self.parts = self.parts2 = nn.Sequential(nn.ReLU(), nn.Tanh())", harmless=True)
_edit("a shared dict of modules is walked", "self.parts['a'](x) * 2", "for k, m in self.parts.items():\n    x = m(x)\nreturn x * 2", "self.parts = self.parts2 = nn.ModuleDict({'a': nn.ReLU()})", harmless=True)
_edit("a shared dict of modules is asked", "self.parts['a'](x) * 2", "return self.parts['a'](x) * (2 if 'a' in self.parts and len(self.parts) == 1 else 3)", "self.parts = self.parts2 = nn.ModuleDict({'a': nn.ReLU()})", harmless=True)

# Third part
_edit("a product of four dimensions is copied if it is a view", "y = x.view(1, 1, 3, 4)\nz = y @ y.mT\nreturn z * 2", "y = x.view(1, 1, 3, 4)\nz = y @ y.mT\nreturn z * (3 if z._is_view() else 2)")
_edit("a model reads the base of a product of four dimensions", "y = x.view(1, 1, 3, 4)\nz = y @ y.mT\nreturn z * 2", "y = x.view(1, 1, 3, 4)\nz = y @ y.mT\nreturn z * (2 if z._base is None else 3)")
_edit("a linear layer of a transposed batch is asked for its base", "y = x.view(1, 3, 4, 1).transpose(1, 3)\nz = F.linear(y, self.lin.weight[:, :3])\nreturn z * 2", "y = x.view(1, 3, 4, 1).transpose(1, 3)\nz = F.linear(y, self.lin.weight[:, :3])\nreturn z * (2 if z._base is None else 3)")
_edit("the memory of dropout's result is compared with its input's", "y = F.dropout(x, 0.5, False)\nreturn y * 2", "y = F.dropout(x, 0.5, False)\nreturn y * (2 if y.untyped_storage()._cdata == x.untyped_storage()._cdata else 3)")
_edit("is_set_to compares dropout's result with its input", "y = F.dropout(x, 0.5, False)\nreturn y * 2", "y = F.dropout(x, 0.5, False)\nreturn y * (2 if y.is_set_to(x) else 3)")
_edit("the gradient function's name of a batch norm decides", "y = F.batch_norm(self.lin(x), torch.zeros(4), torch.ones(4))\nreturn y * 2", "y = F.batch_norm(self.lin(x), torch.zeros(4), torch.ones(4))\nreturn y * (2 if y.grad_fn.name() == 'NativeBatchNormBackward0' else 3)")
_edit("the gradient function's name of an interpolation decides", "y = F.interpolate(self.lin(x)[None, None], scale_factor=2)\nreturn y * 2", "y = F.interpolate(self.lin(x)[None, None], scale_factor=2)\nreturn y * (2 if 'Upsample' in y.grad_fn.name() else 3)")
_edit("Module.__call__ is compared with its other name", "x * 2", "x * (2 if nn.Module.__call__ is nn.Module._wrapped_call_impl else 3)")
_edit("a layer is asked whether its __call__ is torch's own", "self.act(x) * 2", "self.act(x) * (2 if type(self.act).__call__ is nn.Module._wrapped_call_impl else 3)", "self.act = nn.ReLU()")
_edit("a patch of Module.__call__ is looked for by __wrapped__", "x * 2", "x * (3 if hasattr(nn.Module.__call__, '__wrapped__') else 2)")
_edit("Module.__call__ is asked for its signature", "x * 2", "import inspect\nreturn x * (3 if 'mod' in inspect.signature(nn.Module.__call__, follow_wrapped=False).parameters else 2)")
_edit("a count of references decides", "x * 2", "import sys\nreturn x * (3 if sys.getrefcount(x) > 20 else 2)")
_edit("a model reads tracked_fakes of the fake mode", "x * 2", "x * (3 if x.fake_mode.shape_env.tracked_fakes else 2)")
_edit("an error of a layer is caught in a hook of another", "return self.act(x) * 2", "return self.act(x) * 2", """
      self.act, self.fast = nn.ReLU(), Fast()
      def hook(m, a, o):
          if TRY:
              try:
                  self.fast(o)
              except NotImplementedError:
                  pass
      self.act.register_forward_hook(hook)
      """, _FASTS + "\nTRY = False")
_add("a hook of a layer tries another layer, which raises", _model("self.act(x) * 2", """
      self.act, self.fast = nn.ReLU(), Fast()
      def hook(m, a, o):
          if TRY:
              try:
                  self.fast(o)
              except NotImplementedError:
                  pass
      self.act.register_forward_hook(hook)
      """, _FASTS + "\nTRY = False"), "app.TRY = True")
_add("a layer of a shared block raises, which is caught", _model("""
     try:
         y = self.fast(x) if TRY else self.slow(x)
     except NotImplementedError:
         y = self.slow(x)
     return y
     """, _FAST + "\nself.slow2 = self.slow", _FASTS + "\nTRY = False"), "app.TRY = True")
_add("a layer raises, with a dynamic batch", _model("""
     try:
         y = self.fast(x) if TRY else self.slow(x)
     except NotImplementedError:
         y = self.slow(x)
     return y
     """, _FAST, _FASTS + "\nTRY = False"), "app.TRY = True", first="dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=9)},)\n")
_add("a flag is replaced by a tensor, with a dynamic batch", _model("x * (2 if self.flag else 3)", "self.flag = True"), "model.flag = torch.tensor(True)", first="dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=9)},)\n")
_add("a key of a dict has a text that fails, with a dynamic batch", _model("x * self.by[self.key]", "self.key = Key()\nself.by = {self.key: 2.0}", "class Key:\n    pass"), "def text(self):\n    return self.name\napp.Key.__repr__ = text", first="dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=9)},)\n")
_add("a scripted layer is unused, with weights", _model("x * 2", "self.extra = nn.Module()"), "model.extra = torch.jit.script(torch.nn.ReLU())", harmless=True)
_add("a traced layer is called, and another is scripted and unused", _model("self.part(x) * 2", "self.part = torch.jit.trace(nn.ReLU(), torch.rand(2))\nself.extra = torch.jit.script(nn.Tanh())"), "", harmless=True)
_add("a registered argument checks the class of its tensor", _DATA + _BATCH, "", ("    n: int\n", "    n: int\n    def __post_init__(self):\n        assert type(self.x) in (torch.Tensor, torch._subclasses.FakeTensor)\n"), make=_ARGS)
_add("a registered argument counts its constructions", _DATA + _BATCH + "\nMADE = []\n", "", ("    n: int\n", "    n: int\n    def __post_init__(self):\n        MADE.append(1)\n"), make=_ARGS, harmless=True)
_add("a named tuple's argument checks its number", "from typing import NamedTuple\nclass Base(NamedTuple):\n    x: torch.Tensor\n    n: int\nclass Batch(Base):\n    def __new__(cls, x, n):\n        CHECK\n        return super().__new__(cls, x, n)\n".replace("CHECK", "pass") + _BATCH, "", ("        pass\n", "        assert isinstance(n, int)\n"), make=_ARGS)
_add("a method get_submodule tells a layer from its frozen copy", _model("self.get_submodule('lin')(x) * 2"), "def get(self, name):\n    return self.lin if name == 'lin' else None\napp.Model.get_submodule = get", harmless=True)
_add("a model for reinforcement learning gets a method get_buffer without arguments", _model("x * 2 * self.b", "self.register_buffer('b', torch.ones(4), persistent=False)"), "app.Model.get_buffer = lambda self: self.b")
_add("a tree of modules gets a property called children", _model("x * 2"), "app.Model.children = property(lambda self: [self.lin])")
_add("a tree of layers gets a method named_children with a depth", _model("x * 2"), "app.Model.named_children = lambda self, depth: []")

for _doc, _question in (
    ("the class of the fake mode", "type(x.fake_mode) is torch._subclasses.FakeTensorMode"),
    ("the fake mode's cache", "x.fake_mode.cache_enabled"),
    ("the fake mode's converter", "hasattr(x.fake_mode, 'fake_tensor_converter')"),
    ("the hooks of all buffers", "len(torch.nn.modules.module._global_buffer_registration_hooks) > 1"),
    ("the file of Module.__call__", "'_symbolic_trace' in nn.Module.__call__.__code__.co_filename"),
    ("the free variables of Module.__call__", "len(nn.Module.__call__.__code__.co_freevars) == 2"),
):
    _add(f"a value that only an export uses is another: {_doc}", _model(f"x * (self.by if {_question} else 2.0)", "self.by = 2.0"), "model.by = 3.0")
