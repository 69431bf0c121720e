"""Changes to services: transformers' models, packages with registries, patches, files. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

import textwrap

from tests.direct.field_scenarios import _add
from tests.direct.field_scenarios import _model as app


def body(text, by):
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * by)




def hf(fwd="return self.m(inputs_embeds=x.unsqueeze(0)).last_hidden_state", cfg="", init="", top="", more="", kind="Bert", cls=None, layers=1, loaded=False):
    cls = cls or kind + "Model"
    sizes = {
        "Bert": f"hidden_size=4, num_hidden_layers={layers}, num_attention_heads=2, intermediate_size=4, vocab_size=20, max_position_embeddings=16, ",
        "Llama": f"hidden_size=8, num_hidden_layers={layers}, num_attention_heads=2, num_key_value_heads=1, intermediate_size=4, vocab_size=20, max_position_embeddings=16, ",
        "GPT2": f"n_embd=4, n_layer={layers}, n_head=2, n_positions=16, vocab_size=20, bos_token_id=0, eos_token_id=0, ",
        "DistilBert": f"dim=4, n_layers={layers}, n_heads=2, hidden_dim=4, vocab_size=20, max_position_embeddings=16, ",
        "T5": f"d_model=4, d_kv=2, d_ff=4, num_layers={layers}, num_heads=2, vocab_size=20, ",
    }[kind]
    return (
        ("import transformers.integrations.executorch  # otherwise no second process hits\n" if loaded else "") + f"from transformers import {kind}Config, {cls}\n" + textwrap.dedent(top).strip("\n") + "\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        + f"        self.m = {cls}({kind}Config({sizes}{cfg}))\n" + (body(init, 8) + "\n" if init else "")
        + "    def forward(self, x):\n" + body(fwd, 8) + "\n" + (body(more, 4) + "\n" if more else "")
    )


LLAMA = "return self.m(inputs_embeds=torch.cat([x, x], -1).unsqueeze(0), use_cache=False).last_hidden_state"
IDS = "ids = (x.abs() * 4).long().clamp(0, 9).view(1, 12)\n"
# ---------------------------------------------------------------- (a) transformers

_add("set_attn_implementation('eager') is called after loading", hf(), "model.m.set_attn_implementation('eager')")
_add("the library-wide sdpa function is registered anew with a temperature", hf(),
     "from transformers import AttentionInterface\nfrom transformers.integrations.sdpa_attention import sdpa_attention_forward as old\n"
     "def warm(module, q, k, v, mask, **kw):\n    kw['scaling'] = (kw.get('scaling') or 1.0) * 0.5\n    return old(module, q, k, v, mask, **kw)\n"
     "AttentionInterface.register('sdpa', warm)")
_add("a local override of sdpa is put into ALL_ATTENTION_FUNCTIONS", hf(),
     "from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS\n"
     "def plain(module, q, k, v, mask, scaling=None, **kw):\n    w = torch.softmax(q @ k.transpose(-1, -2), -1)\n    return (w @ v).transpose(1, 2).contiguous(), w\n"
     "ALL_ATTENTION_FUNCTIONS['sdpa'] = plain")
_add("eager_attention_forward of modeling_bert is replaced by one in half the scale", hf(cfg="attn_implementation='eager'"),
     "import transformers.models.bert.modeling_bert as mb\nold = mb.eager_attention_forward\n"
     "def eager(module, q, k, v, mask, scaling=None, **kw):\n    return old(module, q, k, v, mask, scaling=scaling * 0.5, **kw)\nmb.eager_attention_forward = eager")
_add("the code object of eager_attention_forward is swapped in place", hf(cfg="attn_implementation='eager'"),
     "import transformers.models.bert.modeling_bert as mb\n"
     "def eager_attention_forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):\n"
     "    w = torch.relu(torch.matmul(query, key.transpose(2, 3)))\n    return torch.matmul(w, value).transpose(1, 2).contiguous(), w\n"
     "eager_attention_forward.__globals__['torch'] = torch\n"
     "mb.eager_attention_forward.__code__ = eager_attention_forward.__code__")
_add("the activation table gets another gelu, which the forward looks up by the config's name",
     hf("from transformers.activations import ACT2FN\nreturn ACT2FN[self.m.config.hidden_act](x)"),
     "from transformers.activations import ACT2FN\nACT2FN['gelu'] = torch.nn.SiLU")
_add("the keyword arguments of an activation are edited in the table's own dictionary",
     hf("return ACT2FN['gelu_10'](x)", top="from transformers.activations import ACT2FN"),
     "import transformers.activations as a\na.ACT2CLS['gelu_10'][1]['max'] = 5")
_add("GELUActivation.forward is patched to the tanh approximation", hf(),
     "import transformers.activations as a\na.GELUActivation.forward = lambda self, input: torch.nn.functional.gelu(input, approximate='tanh')")
_add("a partial's keywords of an activation are changed in place", hf(cfg="hidden_act='gelu_pytorch_tanh'"),
     "model.m.encoder.layer[0].intermediate.intermediate_act_fn.act.keywords['approximate'] = 'none'")
_add("scaled_dot_product_attention is replaced by a reference implementation", hf(),
     "import math\ndef ref(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):\n"
     "    return torch.softmax(query @ key.transpose(-2, -1) * (scale or 1.0), -1) @ value\ntorch.nn.functional.scaled_dot_product_attention = ref")
_add("rotary embedding is patched to the interleaved form", hf(LLAMA, kind="Llama"),
     "import transformers.models.llama.modeling_llama as ml\n"
     "def inter(q, k, cos, sin, unsqueeze_dim=1):\n    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)\n"
     "    r = lambda t: torch.stack((-t[..., 1::2], t[..., ::2]), -1).flatten(-2)\n    return q * cos + r(q) * sin, k * cos + r(k) * sin\nml.apply_rotary_pos_emb = inter")
_add("RMSNorm of the library is patched by a fused-kernel package (in eager terms)", hf(LLAMA, kind="Llama"),
     "import transformers.models.llama.modeling_llama as ml\nml.LlamaRMSNorm.forward = lambda self, h: torch.nn.functional.rms_norm(h, (h.shape[-1],), self.weight, self.variance_epsilon)")
_add("the class of RMSNorm is replaced before the model is built", hf(LLAMA, kind="Llama"), "",
     second="import torch\nimport transformers.models.llama.modeling_llama as ml\nclass LlamaRMSNorm(ml.LlamaRMSNorm):\n    def forward(self, h):\n        return self.weight * h\nml.LlamaRMSNorm = LlamaRMSNorm")
_add("a linear rope is registered with another factor function", hf(LLAMA, kind="Llama", cfg="rope_parameters={'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 2.0}"), "",
     second="import torch\nfrom transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS as R\nold = R['linear']\nR['linear'] = lambda *a, **k: (old(*a, **k)[0] * 0.5, 1.0)")
_add("the config says fewer layers, and the decoder iterates over layers[:num_hidden_layers]", hf(LLAMA, kind="Llama", layers=2), "model.m.config.num_hidden_layers = 1")
_add("an environment variable of transformers forces grouped attention in sdpa",
     hf("return self.m(inputs_embeds=torch.cat([x, x], -1).unsqueeze(0), attention_mask=torch.zeros(1, 1, 3, 3), use_cache=False).last_hidden_state", kind="Llama"), "",
     env={"TRANSFORMERS_SDPA_FORCE_GQA": "1"})
_add("a private availability flag of the sdpa integration is patched",
     hf("return self.m(inputs_embeds=torch.cat([x, x], -1).unsqueeze(0), attention_mask=torch.zeros(1, 1, 3, 3), use_cache=False).last_hidden_state", kind="Llama"),
     "import transformers.integrations.sdpa_attention as s\ns._is_torch_xpu_available = True\ns._is_torch_greater_or_equal_than_2_8 = True")
_add("the token embeddings are resized after special tokens were added", hf(IDS + "return self.m(input_ids=ids).last_hidden_state"), "model.m.resize_token_embeddings(24)")
_add("the decoder of a masked language model is untied", hf(IDS + "return self.m(input_ids=ids).logits", cls="BertForMaskedLM"),
     "d = model.m.cls.predictions.decoder\nd.weight = torch.nn.Parameter(d.weight.detach().clone())")
LORA = """
class LoRALinear(nn.Module):
    enabled = True
    def __init__(self, base, alpha):
        super().__init__()
        self.base, self.alpha, self.r, self.merged = base, alpha, 2, False
        self.a = nn.Parameter(torch.zeros(2, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, 2))
    def forward(self, x):
        y = self.base(x)
        if self.merged or not LoRALinear.enabled:
            return y
        return y + (x @ self.a.t() @ self.b.t()) * (self.alpha / self.r)
"""
WRAP = "s = self.m.encoder.layer[0].attention.self\ns.query = LoRALinear(s.query, 4.0)"
_add("adapters are disabled with a class-wide switch", hf(top=LORA, init=WRAP), "app.LoRALinear.enabled = False")
_add("output_hidden_states is switched on in the config and the head takes the mean of all layers",
     hf("o = self.m(inputs_embeds=x.unsqueeze(0))\nreturn o.last_hidden_state if o.hidden_states is None else torch.stack(o.hidden_states).mean(0)"),
     "model.m.config.output_hidden_states = True")
_add("return_dict is switched off and the wrapper looks at the type of the output",
     hf("o = self.m(inputs_embeds=x.unsqueeze(0))\nreturn o[0] * 2.0 if isinstance(o, tuple) else o.last_hidden_state"), "model.m.config.return_dict = False")
_add("use_cache is switched off in a GPT-2 whose wrapper returns the keys",
     hf("o = self.m(inputs_embeds=x.unsqueeze(0))\nreturn o.last_hidden_state if o.past_key_values is None else (o.last_hidden_state, o.past_key_values.layers[0].keys)", kind="GPT2"),
     "model.m.config.use_cache = False")
_add("feed forward chunking is set on the layers", hf(), "model.m.encoder.layer[0].chunk_size_feed_forward = 1")
_add("the encoder becomes a decoder by its config", hf(), "model.m.config.is_decoder = True\nmodel.m.config.use_cache = False")
_add("the buffer of token types is deleted (a state dict of an old version)", hf(), "del model.m.embeddings.token_type_ids")
_add("a mask function for sdpa is registered", hf(),
     "from transformers.masking_utils import AttentionMaskInterface\nAttentionMaskInterface.register('sdpa', lambda batch_size, **k: torch.ones(1, 1, 3, 3).tril().bool())")
_add("the skip of trivial masks is switched off in masking_utils", hf(),
     "import transformers.masking_utils as mu\nmu._ignore_bidirectional_mask_sdpa = lambda *a, **k: False")
_add("attention of GPT-2 is reordered and upcast", hf(kind="GPT2", cfg="attn_implementation='eager', use_cache=False"), "model.m.h[0].attn.reorder_and_upcast_attn = True")
_add("the attribute map of a config class is changed, and the wrapper scales by hidden_size", hf("return x * self.m.config.hidden_size", kind="DistilBert", cfg=""),
     "type(model.m.config).attribute_map = {**type(model.m.config).attribute_map, 'hidden_size': 'n_layers'}")
_add("the temperature of the generation config is applied in the wrapper", hf("return x / self.m.generation_config.temperature", kind="GPT2", cls="GPT2LMHeadModel", init="self.m.generation_config.temperature = 2.0"),
     "model.m.generation_config.temperature = 4.0")
_add("a path in data leads to the temperature with attrgetter", hf("return x / operator.attrgetter(self.path)(self)", top="import operator", kind="GPT2", cls="GPT2LMHeadModel",
     init="self.path = 'm.generation_' + 'config.temperature'\nself.m.generation_config.temperature = 2.0"), "model.m.generation_config.temperature = 4.0")
_add("a ready attrgetter in a table leads to the temperature", hf("return x / READ['t'](self)", top="import operator\nREAD = {'t': operator.attrgetter('m.generation_config.temperature')}", kind="GPT2", cls="GPT2LMHeadModel",
     init="self.m.generation_config.temperature = 2.0"), "model.m.generation_config.temperature = 4.0")
_add("a class pattern matches the generation config of a model",
     hf("match self.m:\n    case nn.Module(generation_config=object(temperature=2.0)):\n        return x * 2.0\n    case _:\n        return x * 3.0", kind="GPT2", cls="GPT2LMHeadModel",
        init="self.m.generation_config.temperature = 2.0"), "model.m.generation_config.temperature = 4.0")
_add("the state of a config is read with __getstate__ and a key of the user", hf("return x * len(self.m.config.__getstate__()[self.key])", init="self.key = 'name_or_path'[::-1][::-1]\nself.key = '_' + self.key\nself.m.config._name_or_path = 'ab'"),
     "model.m.config._name_or_path = 'abc'")
_add("two configs are compared in a match by value of the wrapper", hf("return x * (2.0 if self.m.config.__reduce_ex__(2)[2].get(self.key) == 'a' else 3.0)", init="self.m.config._name_or_path = 'a'\nself.key = ''.join(['_name', '_or_path'])"),
     "model.m.config._name_or_path = 'b'")
_add("layers to skip are listed in a module of the service", hf("h = x.unsqueeze(0)\nfor i, layer in enumerate(self.m.encoder.layer):\n    if i in skips.SKIP:\n        continue\n    h = layer(h)\n    h = h[0] if isinstance(h, tuple) else h\nreturn h", layers=2, top="import skips")
     + "--- skips.py\nSKIP = [1]\n", "import skips\nskips.SKIP.append(0)")
_add("steering vectors are added by a pre hook whose vector changes", hf(init="self.vec = [1.0, 0.0, 0.0, 0.0]\nself.m.encoder.layer[0].register_forward_pre_hook(Steer(self.vec))",
     top="class Steer:\n    def __init__(self, v):\n        self.v = v\n    def __call__(self, m, a):\n        return (a[0] + torch.tensor(self.v),) + a[1:]"), "model.vec[1] = 1.0")
_add("a Linear inside of BERT is replaced by a quantized class with another scale", hf(top="class Q(nn.Linear):\n    scale = 0.5\n    def forward(self, x):\n        return F.linear(x, torch.round(self.weight / self.scale) * self.scale, self.bias)",
     init="self.m.pooler.dense.__class__ = Q", fwd="return self.m(inputs_embeds=x.unsqueeze(0)).pooler_output"), "app.Q.scale = 0.25")
_add("harmless: another random initialisation of the same BERT", hf(), "import torch\nfor p in model.parameters():\n    p.data.normal_()", harmless=True)
_add("harmless: the generation config of a GPT-2 is changed", hf(IDS + "return self.m(input_ids=ids, use_cache=False).logits", kind="GPT2", cls="GPT2LMHeadModel"), "model.m.generation_config.max_new_tokens = 77", harmless=True)
_add("harmless: the checkpoint has another name", hf(loaded=False), "model.m.config._name_or_path = 'acme/bert-v2'", harmless=True)
_add("harmless: the verbosity of transformers is raised", hf(), "import transformers\ntransformers.logging.set_verbosity_debug()", harmless=True)
_add("harmless: the model is saved and loaded again with from_pretrained",
     hf(), "", make="""
import app, os, transformers
d = 'bert_saved'
model = app.Model()
if not os.path.exists(d + '/config.json'):
    model.m.save_pretrained(d)
model.m = transformers.BertModel.from_pretrained(d)
model = model.eval()
""", harmless=True)

# ---------------------------------------------------------------- (b) in-house libraries

PKG = "--- lib/__init__.py\n"
_add("a plugin registered last under the same name wins", app("REG['scale'](x)", top="from lib.registry import REG\nimport lib.plugins")
     + PKG + "--- lib/registry.py\nREG = {}\ndef register(name):\n    def deco(fn):\n        REG[name] = fn\n        return fn\n    return deco\n"
     + "--- lib/plugins/__init__.py\nimport importlib, pkgutil\nfor info in sorted(pkgutil.iter_modules(__path__), key=lambda i: i.name):\n    importlib.import_module(__name__ + '.' + info.name)\n"
     + "--- lib/plugins/a.py\nfrom lib.registry import register\n@register('scale')\ndef scale(x):\n    return x * 2.0\n", "",
     added="--- lib/plugins/b.py\nfrom lib.registry import register\n@register('scale')\ndef scale(x):\n    return x * 3.0\n")
_add("a factory imports a backend in forward by a name from the config", app("importlib.import_module(self.cfg['backend']).run(x)", "self.cfg = {'backend': 'backend_a'}", "import importlib")
     + "--- backend_a.py\nBY = 2.0\ndef run(x):\n    return x * BY\n", "import backend_a\nbackend_a.BY = 3.0")
_add("an optional package is installed that forward tries to import", app("try:\n    import turbo\nexcept ImportError:\n    return x * 2.0\nreturn turbo.run(x)"), "", added="--- turbo.py\ndef run(x):\n    return x * 3.0\n")
_add("an optional submodule appears that a from-import in forward looks for",
     app("try:\n    from lib import turbo\nexcept ImportError:\n    return x * 2.0\nreturn turbo.run(x)", top="import lib") + PKG, "", added="--- lib/turbo.py\ndef run(x):\n    return x * 3.0\n")
_add("an optional dependency is probed with find_spec in forward", app("return x * (3.0 if importlib.util.find_spec('turbo') else 2.0)", top="import importlib.util"), "", added="--- turbo.py\npass\n")
_add("an optional dependency is probed through a cached helper in a utils module", app("return x * (3.0 if has_turbo() else 2.0)", top="from lib.avail import has_turbo")
     + PKG + "--- lib/avail.py\nimport functools, importlib.util\n@functools.lru_cache(None)\ndef has_turbo():\n    return importlib.util.find_spec('turbo') is not None\n", "", added="--- turbo.py\npass\n")
_add("a module __getattr__ serves constants from a table", app("x * lib.BY", top="import lib") + "--- lib/__init__.py\n_T = {'BY': 2.0}\ndef __getattr__(name):\n    try:\n        return _T[name]\n    except KeyError:\n        raise AttributeError(name)\n",
     "import lib\nlib._T['BY'] = 3.0")
_add("a module __getattr__ loads a submodule lazily on first use in forward", app("lib.ops.run(x)", top="import lib") + "--- lib/__init__.py\nimport importlib\ndef __getattr__(name):\n    if name == 'ops':\n        return importlib.import_module('lib._ops')\n    raise AttributeError(name)\n--- lib/_ops.py\nBY = 2.0\ndef run(x):\n    return x * BY\n", "",
     ("BY = 2.0", "BY = 3.0"))
_add("a module's class is replaced by one with a property", app("x * conf.by", top="import conf") + "--- conf.py\nimport sys, types\nclass _Conf(types.ModuleType):\n    @property\n    def by(self):\n        return self.__dict__['_store']['by']\nsys.modules[__name__].__class__ = _Conf\n_store = {'by': 2.0}\n",
     "import conf\nconf._store['by'] = 3.0")
_add("a lazy loader object resolves on first attribute access", app("x * heavy.BY", top="from lazy import Lazy\nheavy = Lazy('impl')")
     + "--- lazy.py\nimport importlib\nclass Lazy:\n    def __init__(self, name):\n        self._name, self._mod = name, None\n    def __getattr__(self, k):\n        if self.__dict__['_mod'] is None:\n            self.__dict__['_mod'] = importlib.import_module(self._name)\n        return getattr(self._mod, k)\n--- impl.py\nBY = 2.0\n", "",
     ("BY = 2.0", "BY = 3.0"))
_add("importlib.util.LazyLoader delays a module", app("x * impl.BY", top="import importlib.util, sys\nspec = importlib.util.find_spec('impl')\nspec.loader = importlib.util.LazyLoader(spec.loader)\nimpl = importlib.util.module_from_spec(spec)\nsys.modules['impl'] = impl\nspec.loader.exec_module(impl)")
     + "--- impl.py\nBY = 2.0\n", "", ("BY = 2.0", "BY = 3.0"))
_add("a plugin is loaded from a path and not put into sys.modules", app("self.p.run(x)", "self.p = load()", "import importlib.util, os\ndef load():\n    spec = importlib.util.spec_from_file_location('plugin', os.path.join(os.path.dirname(__file__), 'plug', 'p.py'))\n    m = importlib.util.module_from_spec(spec)\n    spec.loader.exec_module(m)\n    return m")
     + "--- plug/p.py\nBY = 2.0\ndef run(x):\n    return x * BY\n", "model.p.BY = 3.0")
_add("only the function of a plugin outside of sys.modules is kept", app("self.run(x)", "self.run = load().run", "import importlib.util, os\ndef load():\n    spec = importlib.util.spec_from_file_location('plugin', os.path.join(os.path.dirname(__file__), 'plug', 'p.py'))\n    m = importlib.util.module_from_spec(spec)\n    spec.loader.exec_module(m)\n    return m")
     + "--- plug/p.py\nBY = 2.0\ndef run(x):\n    return x * BY\n", "model.run.__globals__['BY'] = 3.0")
_add("a Python file as a config is run with runpy and its function kept", app("self.cfg['scale'](x)", "self.cfg = runpy.run_path(os.path.join(os.path.dirname(__file__), 'conf', 'c.py'))", "import runpy, os")
     + "--- conf/c.py\nby = 2.0\ndef scale(x):\n    return x * by\n", "", ("by = 2.0", "by = 3.0"))
_add("a new subclass in another file is found with __subclasses__", app("x * sum(c.by for c in Base.__subclasses__())", top="from lib.base import Base\nimport lib.extra")
     + PKG + "--- lib/base.py\nclass Base:\n    pass\nclass One(Base):\n    by = 2.0\n--- lib/extra.py\npass\n", "", second="import lib.base\nclass Late(lib.base.Base):\n    by = 1.0\nimport builtins\nbuiltins._late = Late")
_add("a singleton by metaclass keeps instances in a dictionary of classes", app("x * Settings().by", top="from lib.s import Settings")
     + PKG + "--- lib/s.py\nclass Meta(type):\n    _all = {}\n    def __call__(cls, *a, **k):\n        if cls not in Meta._all:\n            Meta._all[cls] = super().__call__(*a, **k)\n        return Meta._all[cls]\nclass Settings(metaclass=Meta):\n    def __init__(self):\n        self.by = 2.0\n", "import lib.s\nlib.s.Settings().by = 3.0")
_add("an abstract factory chosen by a feature flag in the environment, read at each call", app("make().run(x)", top="from lib.f import make")
     + PKG + "--- lib/f.py\nimport os\nclass A:\n    def run(self, x):\n        return x * 2.0\nclass B:\n    def run(self, x):\n        return x * 3.0\ndef make():\n    return B() if os.getenv('USE_B') == '1' else A()\n", "", env={"USE_B": "1"})
_add("an enum's _missing_ hook maps unknown names", app("return x * Mode(self.name).by", "self.name = 'unknown'", "from lib.mode import Mode")
     + PKG + "--- lib/mode.py\nimport enum\nclass Mode(enum.Enum):\n    A = 'a'\n    B = 'b'\n    @property\n    def by(self):\n        return {'a': 2.0, 'b': 3.0}[self.value]\n    @classmethod\n    def _missing_(cls, v):\n        return cls.A\n", "", ("return cls.A", "return cls.B"))
_add("an extra member alias is added to an enum's map", app("return x * Mode['CURRENT'].value", top="from lib.mode import Mode")
     + PKG + "--- lib/mode.py\nimport enum\nclass Mode(enum.Enum):\n    A = 2.0\n    B = 3.0\n    CURRENT = 2.0\n", "import lib.mode\nlib.mode.Mode._member_map_['CURRENT'] = lib.mode.Mode.B")
_add("singledispatch gets a handler for the config's type", app("return x * factor(self.cfg)", "self.cfg = Cfg()", "from lib.d import factor, Cfg")
     + PKG + "--- lib/d.py\nimport functools\nclass Cfg:\n    pass\n@functools.singledispatch\ndef factor(c):\n    return 2.0\n", "import lib.d\nlib.d.factor.register(lib.d.Cfg, lambda c: 3.0)")
_add("a context manager around the forward sets a module-level scale", app("with scope(self.by):\n    return x * state.current()", "self.by = 2.0", "from lib import state\nfrom lib.state import scope")
     + PKG + "--- lib/state.py\nimport contextlib\n_stack = [1.0]\nGAIN = 1.0\ndef current():\n    return _stack[-1]\n@contextlib.contextmanager\ndef scope(v):\n    _stack.append(v * GAIN)\n    try:\n        yield\n    finally:\n        _stack.pop()\n", "import lib.state\nlib.state.GAIN = 1.5")
_add("a context variable carries the request's precision", app("return x * LEVEL.get()", top="from lib.ctx import LEVEL") + PKG + "--- lib/ctx.py\nimport contextvars\nLEVEL = contextvars.ContextVar('level', default=2.0)\n", "import lib.ctx\nlib.ctx.LEVEL.set(3.0)")
_add("a thread-local carries the request's settings", app("return x * getattr(LOCAL, 'by', 2.0)", top="from lib.ctx import LOCAL") + PKG + "--- lib/ctx.py\nimport threading\nLOCAL = threading.local()\n", "import lib.ctx\nlib.ctx.LOCAL.by = 3.0")
_add("a descriptor keeps values per instance in a WeakKeyDictionary", app("x * self.cfg.by", "self.cfg = Cfg()", "from lib.desc import Cfg")
     + PKG + "--- lib/desc.py\nimport weakref\nclass Option:\n    def __init__(self, default):\n        self.default, self.values = default, weakref.WeakKeyDictionary()\n    def __get__(self, o, t=None):\n        return self if o is None else self.values.get(o, self.default)\n    def __set__(self, o, v):\n        self.values[o] = v\nclass Cfg:\n    by = Option(2.0)\n", "model.cfg.by = 3.0")
_add("a weak proxy stands for the owner", app("x * self.owner.by", "self.owner = weakref.proxy(OWNER)", "import weakref\nfrom lib.c import OWNER") + PKG + "--- lib/c.py\nclass C:\n    pass\nOWNER = C()\nOWNER.by = 2.0\n", "import lib.c\nlib.c.OWNER.by = 3.0")
_add("a generic class keeps its parameter as an argument", app("x * factor(self.box)", "self.box = Box[float]()", "from lib.g import Box, factor")
     + PKG + "--- lib/g.py\nimport typing\nT = typing.TypeVar('T')\nclass Box(typing.Generic[T]):\n    pass\nW = {float: 2.0, int: 3.0}\ndef factor(b):\n    return W[b.__orig_class__.__args__[0]]\n", "", ("Box[float]()", "Box[int]()"))
_add("a runtime-checkable protocol starts to match", app("return x * (3.0 if isinstance(self.op, Fast) else 2.0)", "self.op = Op()", "from lib.p import Fast, Op")
     + PKG + "--- lib/p.py\nimport typing\n@typing.runtime_checkable\nclass Fast(typing.Protocol):\n    def fast(self): ...\nclass Op:\n    pass\n", "import lib.p\nlib.p.Op.fast = lambda self: None")
_add("a house class is registered as a Mapping of the standard library", app("return x * (3.0 if isinstance(self.cfg, collections.abc.Mapping) else 2.0)", "self.cfg = Cfg()", "import collections.abc\nfrom lib.c import Cfg")
     + PKG + "--- lib/c.py\nclass Cfg:\n    pass\n", "import collections.abc, lib.c\ncollections.abc.Mapping.register(lib.c.Cfg)")
_add("a house scalar is registered as a Number", app("return x * (3.0 if isinstance(self.v, numbers.Number) else 2.0)", "self.v = Scalar()", "import numbers\nfrom lib.c import Scalar")
     + PKG + "--- lib/c.py\nclass Scalar:\n    pass\n", "import numbers, lib.c\nnumbers.Number.register(lib.c.Scalar)")
_add("a pydantic model made in forward has a validator function in Annotated", app("x * Cfg(by=1.0).by", top="from lib.c import Cfg")
     + PKG + "--- lib/c.py\nimport pydantic\nfrom typing import Annotated\nGAIN = 2.0\ndef gain(v):\n    return v * GAIN\nclass Cfg(pydantic.BaseModel):\n    by: Annotated[float, pydantic.AfterValidator(gain)]\n", "import lib.c\nlib.c.GAIN = 3.0")
_add("a custom pydantic type builds its core schema with a default of the moment of import", app("x * Cfg().by", top="from lib.c import Cfg")
     + PKG + "--- lib/c.py\nimport os, pydantic\nfrom pydantic_core import core_schema\nfrom typing import Annotated\nclass Default:\n    def __get_pydantic_core_schema__(self, source, handler):\n        return core_schema.with_default_schema(handler(source), default=float(os.environ.get('ACME_BY', '2.0')))\nclass Cfg(pydantic.BaseModel):\n    by: Annotated[float, Default()]\n", "", env={"ACME_BY": "3.0"})
_add("a pydantic type clamps with limits from a file of limits at import", app("x * Cfg(n='  2.0 ' if self.strip else '3').v()", "self.strip = True", "from lib.c import Cfg")
     + PKG + "--- lib/limits.py\nSTRIP = True\n--- lib/c.py\nimport pydantic\nfrom lib import limits\nclass Cfg(pydantic.BaseModel):\n    model_config = pydantic.ConfigDict(str_strip_whitespace=limits.STRIP)\n    n: str\n    def v(self):\n        return float(len(self.n))\n", "", ("STRIP = True", "STRIP = False"))
_add("a TypeAdapter in a module constrains a list of factors", app("return x * ADAPTER.validate_python(1.0)", top="from lib.c import ADAPTER")
     + PKG + "--- lib/c.py\nimport pydantic\nfrom typing import Annotated\nADAPTER = pydantic.TypeAdapter(Annotated[float, pydantic.BeforeValidator(lambda v: v * 2.0)])\n", "", ("v * 2.0", "v * 3.0"))
_add("a validated call converts the argument by another annotation", app("return x * scale('2')", top="from lib.c import scale")
     + PKG + "--- lib/c.py\nimport pydantic\n@pydantic.validate_call\ndef scale(by: float):\n    return by if isinstance(by, float) else by + 1\n", "", ("by: float", "by: int"))
_add("unset fields of a pydantic config are skipped when it is dumped", app("return x * sum(self.cfg.model_dump(exclude_unset=True).values(), 1.0)", "self.cfg = Cfg(a=1.0)", "from lib.c import Cfg")
     + PKG + "--- lib/c.py\nimport pydantic\nclass Cfg(pydantic.BaseModel):\n    a: float = 1.0\n    b: float = 1.0\n", "", ("Cfg(a=1.0)", "Cfg(a=1.0, b=1.0)"))
_add("a property of a metaclass gives the default", app("x * Cfg.default", top="from lib.c import Cfg")
     + PKG + "--- lib/c.py\n_D = [2.0]\nclass Meta(type):\n    @property\n    def default(cls):\n        return _D[0]\nclass Cfg(metaclass=Meta):\n    pass\n", "import lib.c\nlib.c._D[0] = 3.0")
_add("an argparse namespace gets a class-wide default for missing options", app("x * self.args.by if hasattr(self.args, 'by') else x * 2.0", "self.args = argparse.Namespace(name='m')", "import argparse"),
     "import argparse\nargparse.Namespace.by = 3.0")
_add("Namespace.__getattr__ is patched so that missing options are None", app("try:\n    v = self.args.by\nexcept AttributeError:\n    return x * 2.0\nreturn x * 3.0", "self.args = argparse.Namespace(name='m')", "import argparse"),
     "import argparse\nargparse.Namespace.__getattr__ = lambda self, k: None")
_add("ConfigParser's boolean states learn a word", app("try:\n    fast = self.cp.getboolean('m', 'fast')\nexcept ValueError:\n    fast = False\nreturn x * (3.0 if fast else 2.0)", "self.cp = configparser.ConfigParser()\nself.cp.read_dict({'m': {'fast': 'enabled'}})", "import configparser"),
     "import configparser\nconfigparser.ConfigParser.BOOLEAN_STATES['enabled'] = True")
_add("an OrderedDict of operations is reordered with move_to_end", app("for k in self.ops:\n    x = x * 2.0 if k == 'mul' else x + 1.0\nreturn x", "self.ops = collections.OrderedDict(mul=1, add=1)", "import collections"), "model.ops.move_to_end('mul')")
_add("the maximum length of a deque of recent scales differs", app("w = self.win.copy()\nw.append(5.0)\nreturn x * sum(w)", "self.win = collections.deque([1.0, 2.0], maxlen=2)", "import collections"), "import collections\nmodel.win = collections.deque([1.0, 2.0], maxlen=3)")
_add("the default factory of a defaultdict is replaced", app("return x * self.t.copy()['missing']", "self.t = collections.defaultdict(two)", "import collections\ndef two():\n    return 2.0\ndef three():\n    return 3.0"), "model.t.default_factory = app.three")
_add("a bound method of a dictionary is kept as the lookup", app("return x * self.get('by', 2.0)", "self.get = TABLE.get", "from lib.t import TABLE") + PKG + "--- lib/t.py\nTABLE = {'a': 1.0}\n", "import lib.t\nlib.t.TABLE['by'] = 3.0")
_add("a bound operator of a float is kept as a function", app("return x * self.f(1.0)", "self.f = (2.0).__mul__"), "model.f = (3.0).__mul__")
_add("a live view of a dictionary's values is kept", app("return x * sum(self.v)", "self.v = TABLE.values()", "from lib.t import TABLE") + PKG + "--- lib/t.py\nTABLE = {'by': 2.0}\n", "import lib.t\nlib.t.TABLE['by'] = 3.0")
_add("a float with a unit (a subclass with attributes) is rescaled", app("return x * (self.by * 1000 if self.by.unit == 'm' else self.by)", "self.by = Quantity(2.0)\nself.by.unit = 'm'", "class Quantity(float):\n    pass"), "model.by.unit = 'mm'")
_add("string.Template of prompts with another delimiter decides a length", app("return x * len(string.Template(self.t).safe_substitute(a='xyz'))", "self.t = '%a $a $a'", "import string"), "import string, re\nstring.Template.delimiter = '%'\nstring.Template.pattern = re.compile(string.Template.pattern.pattern.replace(r'\\$', '%'), re.I | re.X)")
_add("harmless: a comment and blank lines in a library file", app("scale(x)", top="from lib.ops import scale") + PKG + "--- lib/ops.py\ndef scale(x):\n    return x * 2.0\n", "", ("def scale(x):", "# reviewed by A.\n\n\ndef scale(x):\n    # a factor of two"), harmless=True)
_add("harmless: an unused helper is added to a library module", app("scale(x)", top="from lib.ops import scale") + PKG + "--- lib/ops.py\ndef scale(x):\n    return x * 2.0\n", "", ("def scale(x):", "def other(y):\n    return y\ndef scale(x):"), harmless=True)
_add("harmless: a plugin package gets an unrelated module", app("scale(x)", top="from lib.ops import scale") + PKG + "--- lib/ops.py\ndef scale(x):\n    return x * 2.0\n", "", added="--- lib/unused.py\nX = 1\n", harmless=True)
_add("harmless: the file is formatted by another line length", app("return x * max(1.0, 2.0) + self.lin(x)"), "", ("max(1.0, 2.0) + self.lin(x)", "max(\n            1.0,\n            2.0,\n        ) + self.lin(x)"), harmless=True)
_add("harmless: an unrelated environment variable is set", app("x * float(os.environ.get('ACME_BY', '2.0'))", top="import os"), "", env={"ACME_OTHER": "5"}, harmless=True)
_add("harmless: an import is moved and another one added", app("x * math.pi", top="import math"), "", ("import math", "import json\nimport math\nimport collections"), harmless=True)
_add("nn.GELU modules see a patched F in torch's activation module", app("self.act(x)", "self.act = nn.GELU()"),
     "import types, torch.nn.modules.activation as a\na.F = types.SimpleNamespace(**{**vars(a.F), 'gelu': lambda x, approximate='none': torch.relu(x)})")
_add("torch._C._nn.gelu is replaced below F for an in-house call", app("torch._C._nn.gelu(x)"), "old = torch._C._nn.gelu\ntorch._C._nn.gelu = lambda x, **k: torch.relu(x)")
_add("a method is added to torch.Tensor and used if present", app("return x.clip01() if hasattr(x, 'clip01') else x * 2.0"), "torch.Tensor.clip01 = lambda self: self.clamp(0, 1)")
_add("Tensor.__mul__ is wrapped by a numerics checker", app("x * 2.0"), "old = torch.Tensor.__mul__\ntorch.Tensor.__mul__ = lambda a, b: old(a, b).clamp(-100, 100)")
_add("filling of uninitialized memory is switched off in deterministic mode", app("return x * (3.0 if torch.utils.deterministic.fill_uninitialized_memory else 2.0)", top="import torch.utils.deterministic"), "torch.utils.deterministic.fill_uninitialized_memory = False")
_add("the MHA fast path is switched off and an encoder layer is exported", app("self.enc(x.unsqueeze(0))", "self.enc = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)"), "torch.backends.mha.set_fastpath_enabled(False)")
_add("opt_einsum is switched off, which a house contraction looks at", app("return x * (3.0 if torch.backends.opt_einsum.enabled else 2.0)"), "torch.backends.opt_einsum.enabled = not torch.backends.opt_einsum.enabled")
_add("the number of threads decides the number of chunks", app("return torch.cat([c * (i + 1) for i, c in enumerate(x.chunk(torch.get_num_threads(), 1))], 1)", ), "torch.set_num_threads(1)", first="import torch\ntorch.set_num_threads(2)")
_add("denormals are flushed, so an epsilon computed in forward vanishes", app("eps = self.eps * self.eps\nreturn x * 2.0 if eps > 0.0 else x * 3.0", "self.eps = 1e-160"), "torch.set_flush_denormal(True)")
_add("the autocast dtype of the CPU is set to float16 globally", app("with torch.autocast('cpu'):\n    return self.lin(x)"), "torch.set_autocast_dtype('cpu', torch.float16)")
_add("the default device is set to meta in a factory call of forward", app("x * torch.ones(4, device=torch.get_default_device() if str(torch.get_default_device()) == 'cpu' else 'cpu') if torch.get_default_device().type == 'cpu' else x * 3.0"), "torch.set_default_device('meta')")
_add("a global forward hook of a debugging tool doubles Linear outputs", app("self.lin(x)"), "import torch.nn.modules.module as mm\nmm.register_module_forward_hook(lambda m, a, o: o * 2.0 if isinstance(m, torch.nn.Linear) else None)")
_add("nn.Module.__call__ is wrapped by a tracer that scales", app("self.lin(x)"), "old = torch.nn.Module.__call__\ndef call(self, *a, **k):\n    o = old(self, *a, **k)\n    return o * 2.0 if isinstance(self, torch.nn.Linear) else o\ntorch.nn.Module.__call__ = call")
_add("nn.init.trunc_normal_ is patched and a lazily made constant differs", app("w = torch.empty(4)\nnn.init.constant_(w, 2.0)\nreturn x * w"), "torch.nn.init.constant_ = lambda t, v: t.fill_(v + 1.0)")
_add("a dynamo option is read by the model", app("return x * (3.0 if torch._dynamo.config.suppress_errors else 2.0)", top="import torch._dynamo"), "import torch._dynamo\ntorch._dynamo.config.suppress_errors = True")
_add("the compiler stance is forced to eager and a house flag reads is_compiling", app("return x * (3.0 if torch.compiler.is_compiling() else 2.0)"), "torch.compiler.is_compiling = lambda: False")
_add("a torch function mode is entered for the whole process", app("self.lin(x) * 2.0", top="from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n        r = f(*a, **(k or {}))\n        return r + 1.0 if f is F.linear else r"), "app.MODE = app.Mode()\napp.MODE.__enter__()")
_add("a tensor subclass constant has a class-level scale", app("x * self.c.scaled()", "self.c = Scaled(2.0)", "class Scaled:\n    unit = 1.0\n    def __init__(self, v):\n        self.t = torch.full((4,), v)\n    def scaled(self):\n        return self.t * self.unit"), "app.Scaled.unit = 2.0")
_add("a parameter subclass dispatches with another gain", app("F.linear(x, self.w)", "self.w = P(torch.rand(4, 4))", "class P(nn.Parameter):\n    gain = 2.0\n    @classmethod\n    def __torch_function__(cls, f, t, a=(), k=None):\n        with torch._C.DisableTorchFunctionSubclass():\n            r = f(*a, **(k or {}))\n        return r * cls.gain if f is F.linear else r"), "app.P.gain = 3.0")
_add("a function inside of NumPy's implementation of linspace is patched", app("x * torch.tensor(np.linspace(1.0, 4.0, 4).astype('float32'))", top="import numpy as np"), "import numpy as np\nimport numpy._core.function_base as fb\nold = fb._nx.arange\nfb._nx.arange = lambda *a, **k: old(*a, **k) * 2")
_add("NumPy raises on a division by zero that the model catches", app("try:\n    v = float(np.float64(1.0) / np.float64(0.0))\nexcept FloatingPointError:\n    v = 2.0\nreturn x * (3.0 if v > 10 else v)", top="import numpy as np"), "import numpy as np\nnp.seterr(all='raise')")
_add("a helper inside of statistics is patched", app("x * float(statistics.mean([1.0, 2.0, 6.0]))", top="import statistics"), "import statistics\nold = statistics._sum\nstatistics._sum = lambda data: (lambda t: (t[0], t[1] * 2, t[2]))(old(data))")
_add("json's default decoder is replaced by a subclass", app("x * json.loads(self.t)['by']", "self.t = '{\"by\": 2.0}'", "import json"), "import json\njson._default_decoder = json.JSONDecoder(parse_float=lambda s: 3.0)")
_add("decimal's precision changes a quotient", app("x * float(decimal.Decimal(2) / decimal.Decimal(3))", top="import decimal"), "import decimal\ndecimal.getcontext().prec = 3")
_add("warnings become errors, and the model has a fallback", app("try:\n    warnings.warn('slow path', UserWarning)\nexcept UserWarning:\n    return x * 3.0\nreturn x * 2.0", top="import warnings"), "import warnings\nwarnings.simplefilter('error', UserWarning)")
_add("a logging filter of the service counts and changes a setting", app("log.warning('hello')\nreturn x * STATE['by']", top="import logging\nlog = logging.getLogger('svc')\nSTATE = {'by': 2.0}"), "import logging\nclass H(logging.Handler):\n    def emit(self, r):\n        app.STATE['by'] = 3.0\nlogging.getLogger('svc').addHandler(H())")
_add("an effective level from the root logger decides", app("return x * 3.0 if probe(log) else x * 2.0", top="import logging\nfrom lib.l import probe\nlog = logging.getLogger('svc.sub')") + PKG + "--- lib/l.py\nimport operator\nprobe = lambda l: operator.methodcaller('getEffectiveLevel')(l) <= 10\n", "import logging\nlogging.getLogger().setLevel(10)")
_add("the default timeout of sockets is used as a limit", app("return x * (socket.getdefaulttimeout() or 2.0)", top="import socket"), "import socket\nsocket.setdefaulttimeout(3.0)")
_add("garbage collection is off in the serving process", app("return x * (2.0 if gc.isenabled() else 3.0)", top="import gc"), "import gc\ngc.disable()")
_add("the start method of multiprocessing decides", app("return x * (3.0 if multiprocessing.get_start_method(allow_none=True) == 'spawn' else 2.0)", top="import multiprocessing"), "import multiprocessing\nmultiprocessing.set_start_method('spawn', force=True)")
_add("the name of the thread decides", app("return x * (3.0 if threading.current_thread().name == 'worker' else 2.0)", top="import threading"), "import threading\nthreading.current_thread().name = 'worker'")
_add("a pytree node is registered with another order of its fields for the output", app("return Out(x * 2.0, x + 1.0)", top="import torch.utils._pytree as pt\nclass Out:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\nORDER = ['a', 'b']\npt.register_pytree_node(Out, lambda o: ([getattr(o, k) for k in ORDER], tuple(ORDER)), lambda v, c: Out(**dict(zip(c, v))), serialized_type_name='Out')"), "app.ORDER.reverse()")
_add("harmless: random weights after further training steps", app("self.lin(x)"), "opt = torch.optim.SGD(model.parameters(), 0.1)\nmodel.train()\nmodel(torch.rand(3, 4)).sum().backward()\nopt.step()\nmodel.eval()", harmless=True)
_add("harmless: seeds are set", app("self.lin(x)"), "import random\nimport numpy as np\ntorch.manual_seed(5)\nrandom.seed(5)\nnp.random.seed(5)", harmless=True)
_add("harmless: a handler is added to the root logger", app("self.lin(x)"), "import logging\nlogging.getLogger().addHandler(logging.StreamHandler())\nlogging.getLogger().setLevel(10)", harmless=True)
_add("harmless: warnings are ignored", app("self.lin(x)"), "import warnings\nwarnings.simplefilter('ignore')", harmless=True)
_add("harmless: the model has answered a request before", app("F.gelu(self.lin(x))"), "with torch.no_grad():\n    model(torch.rand(3, 4))", harmless=True)
_add("harmless: a state dict is loaded", app("F.gelu(self.lin(x))", "self.bn = nn.LayerNorm(4)"), "model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})", harmless=True)
_add("harmless: weights loaded with assign=True", app("F.gelu(self.lin(x))"), "model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)", harmless=True)
_add("a CSV of bucket borders is read into a tuple of the module", app("return torch.bucketize(x, torch.tensor(BORDERS))", top="import csv, os\nBORDERS = [float(r[0]) for r in csv.reader(open(os.path.join(os.path.dirname(__file__), 'b.csv'))) if r]") + "--- b.csv\n0.25\n0.5\n", "", ("0.5\n", "0.75\n"))
_add("package data is read with pkgutil in forward", app("x * float(pkgutil.get_data('lib', 'by.txt'))", top="import pkgutil, lib") + PKG + "--- lib/by.txt\n2.0\n", "", ("2.0", "3.0"))
_add("an npz of anchors is kept as a module-level array", app("x * torch.from_numpy(A.ANCHORS).float()", top="import lib.a as A") + PKG + "--- lib/a.py\nimport numpy as np\nANCHORS = np.load('anchors.npz')['a']\n", "",
     first="import numpy as np\nnp.savez('anchors.npz', a=np.array([1.0, 2.0, 3.0, 4.0]))", second="import numpy as np\nnp.savez('anchors.npz', a=np.array([1.0, 2.0, 3.0, 5.0]))")
_add("a pickle of a plan object is read at construction", app("x * self.plan['steps'][0].by", "self.plan = pickle.load(open('plan.pkl', 'rb'))", "import pickle\nfrom lib.plan import Step") + PKG + "--- lib/plan.py\nclass Step:\n    def __init__(self, by):\n        self.by = by\n", "",
     first="import pickle, lib.plan\npickle.dump({'steps': [lib.plan.Step(2.0)]}, open('plan.pkl', 'wb'))", second="import pickle, lib.plan\npickle.dump({'steps': [lib.plan.Step(3.0)]}, open('plan.pkl', 'wb'))")
_add("an SQLite database gives the factor in forward", app("x * sqlite3.connect('s.db').execute('select by from t').fetchone()[0]", top="import sqlite3"), "import sqlite3\nc = sqlite3.connect('s.db')\nc.execute('update t set by = 3.0')\nc.commit()\nc.close()",
     first="import sqlite3\nc = sqlite3.connect('s.db')\nc.execute('drop table if exists t')\nc.execute('create table t (by real)')\nc.execute('insert into t values (2.0)')\nc.commit()\nc.close()")
_add("an SQLite connection in memory is kept open in a module", app("x * DB.execute('select by from t').fetchone()[0]", top="import sqlite3\nDB = sqlite3.connect(':memory:')\nDB.execute('create table t (by real)')\nDB.execute('insert into t values (2.0)')"), "app.DB.execute('update t set by = 3.0')")
_add("the command line is parsed in forward", app("x * opts().by", top="import argparse\ndef opts():\n    p = argparse.ArgumentParser()\n    p.add_argument('--by', type=float, default=2.0)\n    return p.parse_known_args()[0]"), "import sys\nsys.argv += ['--by', '3.0']")
_add("a variable is expanded in a path string", app("return x * (3.0 if os.path.expandvars('$ACME_MODE/x') == 'fast/x' else 2.0)", top="import os"), "", env={"ACME_MODE": "fast"})
_add("the home directory decides which profile is used", app("return x * (3.0 if str(pathlib.Path.home()).endswith('prod') else 2.0)", top="import pathlib"), "", env={"HOME": "/srv/prod"})
_add("the temporary directory is part of a decision", app("return x * len(tempfile.gettempdir())", top="import tempfile"), "", env={"TMPDIR": "/var/tmp"})
_add("the terminal size decides (COLUMNS)", app("return x * shutil.get_terminal_size().columns", top="import shutil"), "", env={"COLUMNS": "33"}, environ={"COLUMNS": "44"})
_add("the environment is read as bytes", app("return x * float(os.environb.get(b'ACME_BY', b'2.0'))", top="import os"), "", env={"ACME_BY": "3.0"})
_add("the user name selects an experiment", app("return x * (3.0 if getpass.getuser() == 'canary' else 2.0)", top="import getpass"), "", env={"LOGNAME": "canary"})
_add("a YAML text in a module is parsed in forward with another loader constructor", app("x * yaml.load(TEXT, Loader=yaml.SafeLoader)['by']", top="import yaml\nTEXT = 'by: !f 1'\nyaml.SafeLoader.add_constructor('!f', lambda l, n: 2.0)"), "import yaml\nyaml.SafeLoader.add_constructor('!f', lambda l, n: 3.0)")
_add("a TOML text is parsed with another float parser of the house", app("x * parse(TEXT)['by']", top="from lib.t import parse\nTEXT = 'by = 2.0'") + PKG + "--- lib/t.py\nimport tomllib\nHOOK = [float]\ndef parse(t):\n    return tomllib.loads(t, parse_float=lambda s: HOOK[0](s))\n", "import lib.t\nlib.t.HOOK[0] = lambda s: 3.0")
_add("harmless: an unused key of a JSON file outside of the model's dictionary", app("x * self.by", "self.by = json.load(open(os.path.join(os.path.dirname(__file__), 'hp.json')))['by']", "import json, os") + "--- hp.json\n{\"by\": 2.0, \"owner\": \"anna\"}\n", "", ("anna", "bert"), harmless=True)
_add("harmless: the command line has another port", app("x * self.lin(x)[:, :1]"), "import sys\nsys.argv += ['--port', '8080']", harmless=True)
_add("lru_cache was filled for another setting before", app("x * factor()", top="import functools\nCFG = {'by': 2.0}\n@functools.lru_cache\ndef factor():\n    return CFG['by']"), "app.factor.cache_clear()\napp.CFG['by'] = 3.0\napp.factor()\napp.CFG['by'] = 2.0")
_add("the number of entries of an lru_cache decides", app("return x * (3.0 if table.cache_info().currsize > 0 else 2.0)", top="import functools\n@functools.lru_cache\ndef table(n):\n    return n"), "app.table(1)")
_add("the hits of an lru_cache decide", app("return x * (3.0 if table.cache_info().hits > 0 else 2.0)", "table(1)", top="import functools\n@functools.lru_cache\ndef table(n):\n    return n"), "app.table(1)")
_add("a cached property of a config was evaluated before the option changed", app("x * self.cfg.by", "self.cfg = Cfg()", "import functools\nclass Cfg:\n    gain = 2.0\n    @functools.cached_property\n    def by(self):\n        return self.gain"), "model.cfg.__dict__.pop('by', None)\nmodel.cfg.gain = 3.0\nmodel.cfg.by\nmodel.cfg.gain = 2.0")
_add("a hand-written memo in a closure was filled with another value", app("x * factor(2)", top="from lib.memo import factor") + PKG + "--- lib/memo.py\ndef memo(fn):\n    cache = {}\n    def wrapper(n):\n        if n not in cache:\n            cache[n] = fn(n)\n        return cache[n]\n    wrapper.put = cache.__setitem__\n    return wrapper\n@memo\ndef factor(n):\n    return float(n)\n", "import lib.memo\nlib.memo.factor.put(2, 3.0)")
_add("a buffer is made lazily at the first forward of a service", app("if self.pos is None:\n    return x * 2.0\nreturn x + self.pos", "self.register_buffer('pos', None, persistent=False)"), "model.pos = torch.arange(4.0)")
_add("layers run in the order of a range", app("for i in self.order:\n    x = x * (i + 1.0)\n    x = x + 1.0\nreturn x", "self.order = range(3)"), "model.order = range(2, -1, -1)")
_add("the strides of a weight decide on a transposed path", app("return x @ self.w if self.w.is_contiguous() else x @ self.w.t()", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w = torch.nn.Parameter(torch.rand(4, 4).t())")
_add("the storage offset of a weight (a view of a flat checkpoint) decides", app("return x @ self.w * (2.0 if self.w.storage_offset() == 0 else 3.0)", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w = torch.nn.Parameter(torch.rand(32)[16:].view(4, 4))")
_add("the storage size of a weight decides", app("return x @ self.w * (2.0 if self.w.untyped_storage().nbytes() == 64 else 3.0)", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w = torch.nn.Parameter(torch.rand(32)[:16].view(4, 4))")
_add("a Python attribute on a weight tells its layout", app("return x @ self.w * getattr(self.w, 'pack', 2.0)", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w.pack = 3.0")
_add("two buffers become views of one storage and one is updated in place", app("self.a.add_(1.0)\nreturn x * self.b", "self.register_buffer('a', torch.ones(4))\nself.register_buffer('b', torch.ones(4))"), "t = torch.ones(4)\nmodel.a = t\nmodel.b = t")
_add("the weight is also kept in a list, as a constant, and retrained", app("return self.lin(x) * self.keep[0].sum()", "self.keep = [self.lin.weight]"), "model.lin.weight.data.fill_(0.5)")
_add("a tensor in a closure of a hook is updated in place", app("self.lin(x)", "t = torch.ones(4)\nself.update = t.fill_\nself.lin.register_forward_hook(lambda m, a, o: o * t)"), "model.update(3.0)")
_add("the class of the instance is swapped after loading", app("return x * self.by()", top="class Old(nn.Module):\n    def by(self):\n        return 2.0\nclass New(Old):\n    def by(self):\n        return 3.0", base="Old"), "class M2(app.New):\n    forward = app.Model.forward\nmodel.__class__ = M2")
_add("an iteration over a set of enabled heads", app("for h in sorted(self.heads):\n    x = x + float(h)\nreturn x", "self.heads = {1, 2}"), "model.heads.add(5)")
_add("a bytes mask decides on layers", app("for i, b in enumerate(self.mask):\n    if b:\n        x = x * (i + 2.0)\nreturn x", "self.mask = bytearray(b'\\x01\\x00\\x01')"), "model.mask[1] = 1")
_add("a ctypes structure holds native options", app("return x * self.o.by", "self.o = Opt(2.0)", "import ctypes\nclass Opt(ctypes.Structure):\n    _fields_ = [('by', ctypes.c_double)]"), "model.o.by = 3.0")
_add("negative zero in a config changes a quotient's sign", app("return x * math.copysign(2.0, self.z)", "self.z = 0.0", "import math"), "model.z = -0.0")
_add("an integer becomes a bool, an index a mask", app("return x[self.i]", "self.i = 1"), "model.i = True")
_add("a NumPy scalar takes the place of a Python float (promotion)", app("return (x.double() * self.s) if isinstance(self.s, np.floating) else x * self.s", "self.s = 2.0", "import numpy as np"), "import numpy as np\nmodel.s = np.float64(2.0)")
_add("harmless: the gradient of a weight is left from training", app("self.lin(x)"), "model.lin.weight.grad = torch.ones(4, 4)", harmless=True)
_add("harmless: an equal config is built in another order of assignment", app("x * self.cfg.a * self.cfg.b", "self.cfg = C()\nself.cfg.a = 2.0\nself.cfg.b = 3.0", "class C:\n    pass"), "a, b = model.cfg.a, model.cfg.b\nmodel.cfg = app.C()\nmodel.cfg.b = b\nmodel.cfg.a = a", harmless=True)
_add("harmless: garbage is collected and memory is trimmed", app("self.lin(x)"), "import gc\ngc.collect()\ngc.freeze()", harmless=True)
_add("harmless: the model goes through training mode and back", app("F.dropout(self.lin(x), 0.1, self.training)"), "model.train()\nmodel.eval()", harmless=True)
_add("harmless: the model was pickled by a process pool", app("F.gelu(self.lin(x))"), "", make="import app, pickle\nmodel = pickle.loads(pickle.dumps(app.Model())).eval()", harmless=True)

# ---------------------------------------------------------------- (a) transformers
_add("the softmax scale of one attention layer is set by an experiment script", hf(), "model.m.encoder.layer[0].attention.self.scaling = 1.0")
_add("the activation table is changed below the instance, in ACT2FN's tuple of keyword arguments",
     hf("return ACT2FN['gelu_10'](x)", top="from transformers.activations import ACT2FN, ACT2CLS"),
     "import transformers.activations as a\na.ACT2FN['gelu_10'] = (a.ClippedGELUActivation, {'min': -5, 'max': 5})")
_add("the act of an existing GELUActivation is set to relu", hf(), "model.m.encoder.layer[0].intermediate.intermediate_act_fn.act = torch.nn.functional.relu")
_add("an activation module of the library holds a partial with another approximation", hf(cfg="hidden_act='gelu_pytorch_tanh'"),
     "import functools\nmodel.m.encoder.layer[0].intermediate.intermediate_act_fn.act = functools.partial(torch.nn.functional.gelu, approximate='none')")
_add("rotate_half, which the rotary function calls, is patched", hf(LLAMA, kind="Llama"),
     "import transformers.models.llama.modeling_llama as ml\nml.rotate_half = lambda x: torch.cat((x[..., x.shape[-1] // 2:], -x[..., : x.shape[-1] // 2]), -1)")
_add("rope theta in the config changes the inverse frequencies", hf(LLAMA, kind="Llama", cfg="rope_parameters={'rope_type': 'default', 'rope_theta': 10000.0}"), "",
     ("'rope_theta': 10000.0", "'rope_theta': 500.0"))
_add("the inverse frequencies are rescaled in place for long contexts", hf(LLAMA, kind="Llama"), "model.m.rotary_emb.inv_freq.div_(4.0)")
_add("the attention scaling of YaRN is set on the rotary module", hf(LLAMA, kind="Llama"), "model.m.rotary_emb.attention_scaling = 1.2")
_add("one number of key value groups is changed by a head merger", hf(LLAMA, kind="Llama"),
     "a = model.m.layers[0].self_attn\na.scaling = a.scaling * 2")
_add("the embeddings are replaced with set_input_embeddings, with max_norm", hf(IDS + "return self.m(input_ids=ids).last_hidden_state"),
     "e = torch.nn.Embedding(20, 4, padding_idx=0)\ne.scale_grad_by_freq = True\nmodel.m.set_input_embeddings(e)")
_add("the last encoder layer is dropped for a distilled copy", hf(layers=2), "model.m.encoder.layer = model.m.encoder.layer[:1]")
_add("the two encoder layers are tied to one", hf(layers=2), "model.m.encoder.layer[1] = model.m.encoder.layer[0]")
_add("a LoRA adapter's alpha is changed", hf(top=LORA, init=WRAP), "model.m.encoder.layer[0].attention.self.query.alpha = 8.0")
_add("a LoRA adapter is merged", hf(top=LORA, init=WRAP), "model.m.encoder.layer[0].attention.self.query.merged = True")
_add("the adapter is unwrapped again", hf(top=LORA, init=WRAP), "s = model.m.encoder.layer[0].attention.self\ns.query = s.query.base")
_add("output_attentions is switched on in the config, and the caller returns them",
     hf("o = self.m(inputs_embeds=x.unsqueeze(0))\nreturn o.last_hidden_state if o.attentions is None else (o.last_hidden_state, o.attentions[0])", cfg="attn_implementation='eager'"),
     "model.m.config.output_attentions = True")
_add("the epsilon of a LayerNorm is set", hf(), "model.m.embeddings.LayerNorm.eps = 1e-3")
_add("the position ids buffer is reversed for a right-to-left experiment", hf(), "model.m.embeddings.position_ids.copy_(model.m.embeddings.position_ids.flip(1).clone())")
_add("the bidirectional mask function of modeling_bert is patched to a causal one", hf(),
     "import transformers.models.bert.modeling_bert as mb\nmb.create_bidirectional_mask = lambda config, inputs_embeds, attention_mask, **k: torch.ones(1, 1, 3, 3).tril().bool()")
_add("Conv1D of the library is patched to a linear", hf(kind="GPT2", cfg="use_cache=False"),
     "import transformers.pytorch_utils as pu\npu.Conv1D.forward = lambda self, x: torch.nn.functional.linear(x, self.weight.t(), self.bias)")
_add("T5's layer norm becomes a fused rms norm", hf(kind="T5", cls="T5EncoderModel"),
     "import transformers.models.t5.modeling_t5 as mt\nmt.T5LayerNorm.forward = lambda self, h: torch.nn.functional.rms_norm(h, (h.shape[-1],), self.weight, self.variance_epsilon)")
_add("T5's number of relative buckets is patched on the attention", hf(kind="T5", cls="T5EncoderModel"),
     "model.m.encoder.block[0].layer[0].SelfAttention.relative_attention_max_distance = 2\nmodel.m.encoder.block[0].layer[0].SelfAttention.relative_attention_num_buckets = 4")
_add("a nested dictionary of task parameters in the config holds a factor", hf("return x * self.m.config.task_specific_params['rank']['by']", cfg="", init="self.m.config.task_specific_params = {'rank': {'by': 2.0}}"),
     "model.m.config.task_specific_params['rank']['by'] = 3.0")
_add("the checkpoint's name selects a branch", hf("return x * (2.0 if self.m.config._name_or_path.startswith('small') else 3.0)", init="self.m.config._name_or_path = 'small/a'"),
     "model.m.config._name_or_path = 'large/a'")
_add("the config's dtype is used to cast in the wrapper", hf("return x.to(self.m.config.dtype or torch.float32) * 2", init="self.m.config.dtype = torch.float32"), "model.m.config.dtype = torch.float64")
_add("a forward hook is put on an encoder layer by an early-exit tool", hf(), "model.m.encoder.layer[0].register_forward_hook(lambda m, a, o: (o[0] * 2.0,) + o[1:] if isinstance(o, tuple) else o * 2.0)")
_add("the pooler is removed", hf("o = self.m(inputs_embeds=x.unsqueeze(0))\nreturn o.last_hidden_state if o.pooler_output is None else o.pooler_output"), "model.m.pooler = None")
_add("dropout is active again in one layer of an evaluated model (MC dropout)", hf(), "model.m.encoder.layer[0].output.dropout.train()")
_add("gradient checkpointing is enabled and the model is set to train with no dropout", hf(cfg="hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0"), "model.m.gradient_checkpointing_enable()\nmodel.m.train()")

# ---------------------------------------------------------------- (b) in-house libraries

_add("a factory takes a dotted path from a settings module", app("self.fn(x)", "self.fn = load(settings.ACT)", "import settings\nfrom loader import load")
     + "--- settings.py\nACT = 'acts.relu'\n--- loader.py\nimport importlib\ndef load(path):\n    m, n = path.rsplit('.', 1)\n    return getattr(importlib.import_module(m), n)\n"
     + "--- acts.py\ndef relu(x):\n    return F.relu(x)\ndef silu(x):\n    return F.silu(x)\n", "", ("'acts.relu'", "'acts.silu'"))
_add("a factory imports its backend in each forward by a constant name", app("importlib.import_module('backend').run(x)", top="import importlib") + "--- backend.py\nBY = 2.0\ndef run(x):\n    return x * BY\n", "",
     ("BY = 2.0", "BY = 3.0"))
_add("a versioned backend is chosen by a registry keyed by (name, version)", app("return BACKENDS[('mul', max(v for n, v in BACKENDS if n == 'mul'))](x)", top="from lib.b import BACKENDS")
     + PKG + "--- lib/b.py\nBACKENDS = {('mul', 1): lambda x: x * 2.0}\n", "import lib.b\nlib.b.BACKENDS[('mul', 2)] = lambda x: x * 3.0")
_add("a compat shim decides by the version of a library at import", app("compat.scale(x)", top="from lib import compat")
     + PKG + "--- lib/version.py\n__version__ = '1.4'\n--- lib/compat.py\nfrom lib.version import __version__\nif tuple(map(int, __version__.split('.'))) >= (2, 0):\n    def scale(x):\n        return x * 3.0\nelse:\n    def scale(x):\n        return x * 2.0\n", "",
     ("'1.4'", "'2.1'"))
_add("subclasses register themselves with __init_subclass__ and a priority", app("return best()(x)", top="import lib.ops\nfrom lib.base import best")
     + PKG + "--- lib/base.py\nclass Op:\n    ALL = []\n    priority = 0\n    def __init_subclass__(cls, **kw):\n        super().__init_subclass__(**kw)\n        Op.ALL.append(cls)\ndef best():\n    return max(Op.ALL, key=lambda c: c.priority)()\n"
     + "--- lib/ops.py\nfrom lib.base import Op\nclass Two(Op):\n    priority = 1\n    def __call__(self, x):\n        return x * 2.0\nclass Three(Op):\n    priority = 0\n    def __call__(self, x):\n        return x * 3.0\n", "import lib.ops\nlib.ops.Three.priority = 5")
_add("a class decorator stores options on the class", app("self.op(x)", "self.op = Op()", "from lib.deco import options\n@options(by=2.0)\nclass Op:\n    def __call__(self, x):\n        return x * type(self)._options['by']")
     + PKG + "--- lib/deco.py\ndef options(**kw):\n    def deco(cls):\n        cls._options = kw\n        return cls\n    return deco\n", "", ("by=2.0", "by=3.0"))
_add("a singleton service is configured elsewhere", app("x * Service.get().by", top="from lib.service import Service")
     + PKG + "--- lib/service.py\nclass Service:\n    _one = None\n    def __init__(self):\n        self.by = 2.0\n    @classmethod\n    def get(cls):\n        if cls._one is None:\n            cls._one = cls()\n        return cls._one\n", "import lib.service\nlib.service.Service.get().by = 3.0")
_add("a dependency-injection container provides another implementation", app("self.c.resolve(Scaler).run(x)", "self.c = container", "from lib.di import container\nfrom lib.api import Scaler\nimport lib.wiring")
     + PKG + "--- lib/di.py\nclass Container:\n    def __init__(self):\n        self._p = {}\n    def bind(self, t, f):\n        self._p[t] = f\n    def resolve(self, t):\n        return self._p[t]()\ncontainer = Container()\n--- lib/api.py\nimport abc\nclass Scaler(abc.ABC):\n    @abc.abstractmethod\n    def run(self, x): ...\n"
     + "--- lib/impl.py\nfrom lib.api import Scaler\nclass Two(Scaler):\n    def run(self, x):\n        return x * 2.0\nclass Three(Scaler):\n    def run(self, x):\n        return x * 3.0\n--- lib/wiring.py\nfrom lib.di import container\nfrom lib.api import Scaler\nfrom lib import impl\ncontainer.bind(Scaler, impl.Two)\n", "",
     ("impl.Two", "impl.Three"))
_add("feature flags are a Flag enum parsed from the environment at import", app("return x * (3.0 if Feature.FAST in ACTIVE else 2.0)", top="from lib.flags import Feature, ACTIVE")
     + PKG + "--- lib/flags.py\nimport enum, os\nclass Feature(enum.Flag):\n    NONE = 0\n    FAST = enum.auto()\n    SAFE = enum.auto()\nACTIVE = Feature[os.environ.get('FEATURE', 'SAFE')]\n", "", env={"FEATURE": "FAST"})
_add("a StrEnum value is renamed so that a dispatch by string differs", app("return x * TABLE[Mode.DEFAULT]", top="from lib.mode import Mode\nTABLE = {'a': 2.0, 'b': 3.0}")
     + PKG + "--- lib/mode.py\nimport enum\nclass Mode(enum.StrEnum):\n    DEFAULT = 'a'\n", "", ("DEFAULT = 'a'", "DEFAULT = 'b'"))
_add("a mixin's order in the bases changes the method resolution", app("self.scale(x)", top="from lib.mix import A, B", base="A, B, nn.Module")
     + PKG + "--- lib/mix.py\nclass A:\n    def scale(self, x):\n        return x * 2.0\nclass B:\n    def scale(self, x):\n        return x * 3.0\n", "", ("(A, B, nn.Module)", "(B, A, nn.Module)"))
_add("an import applies a monkey-patch to another in-house class", app("self.op(x)", "self.op = Op()", "from lib.op import Op\nimport lib.site")
     + PKG + "--- lib/op.py\nclass Op:\n    def __call__(self, x):\n        return x * 2.0\n--- lib/site.py\nENABLED = False\nif ENABLED:\n    import lib.op\n    lib.op.Op.__call__ = lambda self, x: x * 3.0\n", "", ("ENABLED = False", "ENABLED = True"))
_add("singledispatchmethod gets a handler for float", app("return self.h.factor(1.5) * x", "self.h = H()", "from lib.d import H")
     + PKG + "--- lib/d.py\nimport functools\nclass H:\n    @functools.singledispatchmethod\n    def factor(self, v):\n        return 2.0\n", "import lib.d\nlib.d.H.__dict__['factor'].register(float, lambda self, v: 3.0)")
_add("a decorator with state in a closure is reconfigured", app("scale(x)", top="from lib.deco import scale, configure")
     + PKG + "--- lib/deco.py\ndef make():\n    by = 2.0\n    def configure(v):\n        nonlocal by\n        by = v\n    def scale(x):\n        return x * by\n    return scale, configure\nscale, configure = make()\n", "app.configure(3.0)")
_add("a decorator keeps its state as an attribute of the wrapper", app("scale(x)", top="from lib.deco import scale")
     + PKG + "--- lib/deco.py\nimport functools\ndef scaled(fn):\n    @functools.wraps(fn)\n    def wrapper(x):\n        return fn(x) * wrapper.by\n    wrapper.by = 2.0\n    return wrapper\n@scaled\ndef scale(x):\n    return x + 1\n", "import lib.deco\nlib.deco.scale.by = 3.0")
_add("a descriptor with __set_name__ prefixes the environment name", app("x * self.cfg.by", "self.cfg = Cfg()", "from lib.desc import Cfg")
     + PKG + "--- lib/desc.py\nimport os\nclass Env:\n    def __set_name__(self, owner, name):\n        self.name = owner.prefix + name.upper()\n    def __get__(self, o, t=None):\n        return float(os.environ.get(self.name, '2.0'))\nclass Cfg:\n    prefix = 'ACME_'\n    by = Env()\n", "", env={"ACME_BY": "3.0"})
_add("a class with slots gets another value", app("x * self.cfg.by", "self.cfg = Cfg(2.0)", "from lib.slots import Cfg") + PKG + "--- lib/slots.py\nclass Cfg:\n    __slots__ = ('by', '__weakref__')\n    def __init__(self, by):\n        self.by = by\n", "model.cfg.by = 3.0")
_add("a weak reference points to a config whose value changes", app("x * self.ref().by", "self.ref = weakref.ref(DEFAULT)", "import weakref\nfrom lib.c import DEFAULT") + PKG + "--- lib/c.py\nclass C:\n    by = 2.0\nDEFAULT = C()\n", "import lib.c\nlib.c.DEFAULT.by = 3.0")
_add("dataclass inheritance with a default factory of the parent", app("x * self.cfg.table['by']", "self.cfg = Child()", "from lib.c import Child")
     + PKG + "--- lib/c.py\nimport dataclasses\n@dataclasses.dataclass\nclass Parent:\n    table: dict = dataclasses.field(default_factory=lambda: {'by': 2.0})\n@dataclasses.dataclass\nclass Child(Parent):\n    name: str = 'c'\n", "", ("{'by': 2.0}", "{'by': 3.0}"))
_add("forward makes the dataclass anew, whose default comes from another module", app("x * Cfg().by", top="from lib.c import Cfg")
     + PKG + "--- lib/defaults.py\nBY = 2.0\n--- lib/c.py\nimport dataclasses\nfrom lib import defaults\n@dataclasses.dataclass\nclass Cfg:\n    by: float = dataclasses.field(default_factory=lambda: defaults.BY)\n", "import lib.defaults\nlib.defaults.BY = 3.0")
_add("dataclasses.replace and fields metadata drive the factor", app("return x * sum(f.metadata.get('w', 0.0) for f in dataclasses.fields(self.cfg))", "self.cfg = Cfg()", "import dataclasses\nfrom lib.c import Cfg")
     + PKG + "--- lib/c.py\nimport dataclasses\n@dataclasses.dataclass\nclass Cfg:\n    a: int = dataclasses.field(default=1, metadata={'w': 2.0})\n", "", ("'w': 2.0", "'w': 3.0"))
_add("a pydantic config's default is edited", app("x * self.cfg.by", "self.cfg = Cfg()", "from lib.c import Cfg") + PKG + "--- lib/c.py\nimport pydantic\nclass Cfg(pydantic.BaseModel):\n    by: float = 2.0\n", "", ("by: float = 2.0", "by: float = 3.0"))
_add("a computed field of pydantic depends on a private attribute", app("x * self.cfg.by", "self.cfg = Cfg()", "from lib.c import Cfg")
     + PKG + "--- lib/c.py\nimport pydantic\nclass Cfg(pydantic.BaseModel):\n    _gain: float = pydantic.PrivateAttr(default=2.0)\n    @pydantic.computed_field\n    @property\n    def by(self) -> float:\n        return self._gain\n", "model.cfg._gain = 3.0")
_add("an attrs-like class collects attributes in a hand-written metaclass", app("x * self.cfg.by", "self.cfg = Cfg()", "from lib.c import Cfg")
     + PKG + "--- lib/attr.py\nclass Attr:\n    def __init__(self, default):\n        self.default = default\nclass Meta(type):\n    def __new__(m, n, b, ns):\n        ns['_attrs'] = {k: v for k, v in ns.items() if isinstance(v, Attr)}\n        for k in ns['_attrs']:\n            ns.pop(k)\n        return super().__new__(m, n, b, ns)\n    def __call__(cls, **kw):\n        o = cls.__new__(cls)\n        for k, a in cls._attrs.items():\n            o.__dict__[k] = kw.get(k, a.default)\n        return o\n--- lib/c.py\nfrom lib.attr import Attr, Meta\nclass Cfg(metaclass=Meta):\n    by = Attr(2.0)\n", "", ("Attr(2.0)", "Attr(3.0)"))
_add("a config's __getattr__ falls back to a chain of parents", app("x * self.cfg.by", "self.cfg = Node(Node(None, by=2.0))", "from lib.c import Node")
     + PKG + "--- lib/c.py\nclass Node:\n    def __init__(self, parent, **kw):\n        self.parent = parent\n        self.__dict__.update(kw)\n    def __getattr__(self, k):\n        if self.__dict__.get('parent') is None:\n            raise AttributeError(k)\n        return getattr(self.parent, k)\n", "model.cfg.parent.by = 3.0")
_add("optionxform of ConfigParser is patched to keep case", app("return x * self.cp.getfloat('m', 'By', fallback=2.0)", "self.cp = configparser.ConfigParser()\nself.cp.read_dict({'m': {'by': '3.0'}})", "import configparser"),
     "import configparser\nconfigparser.RawConfigParser.optionxform = lambda self, s: s")
_add("a ChainMap of settings gets a new front map", app("return x * self.cfg['by']", "self.cfg = collections.ChainMap({}, {'by': 2.0})", "import collections"), "model.cfg.maps.insert(0, {'by': 3.0})")
_add("a methodcaller in a pipeline has another argument", app("return self.f(x)", "self.f = operator.methodcaller('clamp', max=0.5)", "import operator"), "import operator\nmodel.f = operator.methodcaller('clamp', max=0.25)")
_add("a mapping proxy gives a view of a table", app("return x * self.v['by']", "self.v = types.MappingProxyType(TABLE)", "import types\nfrom lib.t import TABLE") + PKG + "--- lib/t.py\nTABLE = {'by': 2.0}\n", "import lib.t\nlib.t.TABLE['by'] = 3.0")
_add("harmless: the config object is deep-copied", app("x * self.cfg.by", "self.cfg = Cfg()", "import dataclasses\n@dataclasses.dataclass\nclass Cfg:\n    by: float = 2.0"), "import copy\nmodel.cfg = copy.deepcopy(model.cfg)", harmless=True)
# ---------------------------------------------------------------- (c) monkey-patches of torch and Python
_add("F.gelu is wrapped so that it always approximates", app("F.gelu(self.lin(x))"), "old = torch.nn.functional.gelu\ntorch.nn.functional.gelu = lambda x, approximate='tanh': old(x, approximate='tanh')")
_add("nn.Linear.forward is patched with an int8 simulation", app("self.lin(x)"), "torch.nn.Linear.forward = lambda self, x: torch.nn.functional.linear(torch.round(x * 127) / 127, self.weight, self.bias)")
_add("LayerNorm.forward is patched to RMSNorm", app("self.n(x)", "self.n = nn.LayerNorm(4)"), "torch.nn.LayerNorm.forward = lambda self, x: torch.nn.functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)")
_add("a block takes its norm class from a class attribute that is replaced", app("type(self).norm(4)(x)", more="norm = nn.LayerNorm"), "app.Model.norm = torch.nn.RMSNorm")
_add("an added Tensor method is changed", app("x.scaled()", top="import lib.ext") + PKG + "--- lib/ext.py\nBY = 2.0\ntorch.Tensor.scaled = lambda self: self * BY\n", "import lib.ext\nlib.ext.BY = 3.0")
_add("the default dtype is float64 while a table is made in forward", app("x * torch.tensor([1.0, 2.0, 3.0, 4.0])"), "torch.set_default_dtype(torch.float64)")
_add("flash attention is switched off and the model branches on it", app("return x * (3.0 if torch.backends.cuda.flash_sdp_enabled() else 2.0)"), "torch.backends.cuda.enable_flash_sdp(False)")
_add("the matmul precision is read by a house layer", app("return x * (3.0 if torch.get_float32_matmul_precision() == 'high' else 2.0)"), "torch.set_float32_matmul_precision('high')")
_add("deterministic mode selects another scatter", app("return x.cumsum(0) if torch.are_deterministic_algorithms_enabled() else x * 2.0"), "torch.use_deterministic_algorithms(True)")
_add("mkldnn is disabled, which a house convolution looks at", app("return x * (3.0 if torch.backends.mkldnn.enabled else 2.0)"), "torch.backends.mkldnn.set_flags(False)")
_add("cudnn.benchmark is read by the model", app("return x * (3.0 if torch.backends.cudnn.benchmark else 2.0)"), "torch.backends.cudnn.benchmark = True")
_add("a global pre hook is registered whose state then changes", app("self.lin(x)"), "import torch.nn.modules.module as mm\nS = {'by': 3.0}\nmm.register_module_forward_pre_hook(lambda m, a: (a[0] * S['by'],) if isinstance(m, torch.nn.Linear) else None)")
_add("a keyword hook is added to a layer", app("self.lin(x)"), "model.lin.register_forward_pre_hook(lambda m, a, k: ((a[0] * 3.0,), k), with_kwargs=True)")
_add("nn.Sequential.forward is patched to add residuals", app("self.s(x)", "self.s = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))"), "def fwd(self, x):\n    for m in self:\n        x = x + m(x)\n    return x\ntorch.nn.Sequential.forward = fwd")
_add("a parametrization is registered on a weight", app("self.lin(x)"), "import torch.nn.utils.parametrize as P\nclass Sym(torch.nn.Module):\n    def forward(self, w):\n        return w.triu() + w.triu(1).t()\nP.register_parametrization(model.lin, 'weight', Sym())")
_add("a parametrization's attribute is changed", app("self.lin(x)", "P.register_parametrization(self.lin, 'weight', Gain())", "import torch.nn.utils.parametrize as P\nclass Gain(nn.Module):\n    by = 2.0\n    def forward(self, w):\n        return w * self.by"), "model.lin.parametrizations.weight[0].by = 3.0")
_add("weight norm of torch.nn.utils is removed", app("self.lin(x)", "self.lin = nn.utils.parametrizations.weight_norm(self.lin)"), "import torch.nn.utils.parametrize as P\nP.remove_parametrizations(model.lin, 'weight')")
_add("magnitude pruning is applied with torch.nn.utils.prune", app("self.lin(x)"), "import torch.nn.utils.prune as prune\nprune.l1_unstructured(model.lin, 'weight', amount=4)")
_add("spectral norm takes another number of iterations, in training", app("self.lin(x)", "self.lin = nn.utils.parametrizations.spectral_norm(self.lin, eps=1e-12)"), "model.lin.parametrizations.weight[0].eps = 1e-3")
_add("np.sqrt is patched by a fast approximation", app("x * float(np.sqrt(4.0))", top="import numpy as np"), "import numpy as np\nnp.sqrt = lambda v: 3.0")
_add("np.linspace is wrapped where the schedule is made in forward", app("x * torch.tensor(np.linspace(1.0, 4.0, 4).astype('float32'))", top="import numpy as np"), "import numpy as np\nold = np.linspace\nnp.linspace = lambda a, b, n: old(a, b, n)[::-1].copy()")
_add("max is shadowed in the globals of a house module", app("clip(x)", top="from lib.u import clip") + PKG + "--- lib/u.py\ndef clip(x):\n    return x * max(2.0, 1.0)\n", "import lib.u\nlib.u.max = lambda a, b: 3.0")
_add("math of a module is replaced by an in-house module", app("scale(x)", top="from lib.u import scale") + PKG + "--- lib/u.py\nimport math\ndef scale(x):\n    return x * math.sqrt(4.0)\n", "import lib.u, types\nlib.u.math = types.SimpleNamespace(sqrt=lambda v: 3.0)")
_add("statistics.mean is patched to a robust mean", app("x * statistics.mean([1.0, 2.0, 6.0])", top="import statistics"), "import statistics\nstatistics.mean = lambda v: sorted(v)[len(v) // 2]")
_add("Fraction arithmetic is patched", app("x * float(self.f * 2)", "self.f = fractions.Fraction(1, 3)", "import fractions"), "import fractions\nfractions.Fraction.__mul__ = lambda a, b: fractions.Fraction(5, 3)")
_add("debug logging adds a check to the program", app("return x * 3.0 if log.isEnabledFor(logging.DEBUG) else x * 2.0", top="import logging\nlog = logging.getLogger('svc')"), "import logging\nlogging.getLogger('svc').setLevel(logging.DEBUG)")
_add("a named output type gets its fields in another order", app("return Out(b=x * 2.0, a=x + 1.0)", top="from lib.o import Out") + PKG + "--- lib/o.py\nimport collections\nOut = collections.namedtuple('Out', 'a b')\n", "", ("'a b'", "'b a'"))
_add("harmless: the number of threads is set for a model that does not look", app("self.lin(x)"), "torch.set_num_threads(1)", harmless=True)
# ---------------------------------------------------------------- (d) data
_add("a JSON file of hyperparameters is read at construction", app("x * self.hp['by']", "self.hp = json.load(open(os.path.join(os.path.dirname(__file__), 'hp.json')))", "import json, os") + "--- hp.json\n{\"by\": 2.0, \"layers\": [1, 2]}\n", "", ("\"by\": 2.0", "\"by\": 3.0"))
_add("a JSON file is read in each forward", app("x * json.loads(open(os.path.join(os.path.dirname(__file__), 'hp.json')).read())['by']", top="import json, os") + "--- hp.json\n{\"by\": 2.0}\n", "", ("2.0", "3.0"))
_add("package data is read with importlib.resources in forward", app("x * float(importlib.resources.files('lib').joinpath('by.txt').read_text())", top="import importlib.resources, lib") + PKG + "--- lib/by.txt\n2.0\n", "", ("2.0", "3.0"))
_add("np.loadtxt reads a table in forward", app("x * float(np.loadtxt(os.path.join(os.path.dirname(__file__), 't.txt')))", top="import numpy as np, os") + "--- t.txt\n2.0\n", "", ("2.0", "3.0"))
_add("the environment is merged into a configuration dictionary in forward", app("return x * float(({'ACME_BY': '2.0'} | os.environ)['ACME_BY'])", top="import os"), "", env={"ACME_BY": "3.0"})
# ---------------------------------------------------------------- (e) dynamic behaviour
_add("a request counter selects every second path", app("return x * (2.0 if STATS['n'] % 2 == 0 else 3.0)", top="STATS = {'n': 0}"), "app.STATS['n'] += 1")
_add("a counter is incremented by forward", app("self.n += 1\nreturn x * self.n", "self.n = 0"), "model.n = 5")
_add("lru_cache keeps a factor of an old setting", app("x * factor()", "factor()", "import functools\nCFG = {'by': 2.0}\n@functools.lru_cache\ndef factor():\n    return CFG['by']"), "app.CFG['by'] = 3.0\napp.factor.cache_clear()")
_add("a module-level cache of position tables holds a stale table", app("k = x.shape[0]\nif k not in CACHE:\n    CACHE[k] = [float(i) for i in range(k)]\nreturn x + torch.tensor(CACHE[k]).unsqueeze(1)", top="CACHE = {}"), "app.CACHE[3] = [1.0, 2.0, 3.0]")
_add("a memoised mask in the instance has been made for another window", app("m = self.mask()\nreturn x.masked_fill(torch.tensor(m).unsqueeze(1), 0.0)", "self._mask, self.window = None, 1", more="def mask(self):\n    if self._mask is None:\n        self._mask = [i >= self.window for i in range(3)]\n    return self._mask"), "model._mask = [True, False, True]")
_add("a flag is flipped by the first call (weights were packed)", app("if not self.packed:\n    return F.linear(x, self.lin.weight) * 2.0\nreturn F.linear(x, self.lin.weight) * 3.0", "self.packed = False"), "model.packed = True")
_add("layers are skipped by a list of indices in the instance", app("for i, l in enumerate(self.ls):\n    if i not in self.skip:\n        x = l(x)\nreturn x", "self.ls = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))\nself.skip = [1]"), "model.skip.append(2)")
_add("layers are skipped by a slice object", app("for l in self.ls[self.part]:\n    x = l(x)\nreturn x", "self.ls = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))\nself.part = slice(0, 2)"), "model.part = slice(1, 3, 2)")
_add("whether a weight requires a gradient decides", app("return x @ self.w * (2.0 if self.w.requires_grad else 3.0)", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w.requires_grad_(False)")
_add("a running statistic as a plain tensor is updated by serving", app("return x - self.mean", "self.mean = torch.zeros(4)"), "model.mean.add_(1.0)")
_add("an instance's forward is replaced by a bound method of another class", app("return x * 2.0", more="def alt(self, x):\n    return x * 3.0"), "model.forward = model.alt")
_add("the training flag of a submodule only is set", app("return x * (3.0 if self.lin.training else 2.0)"), "model.lin.train()")
_add("an observer collected a range in the first batches", app("self.obs(x)", "self.obs = Obs()", "class Obs(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.hi = None\n    def forward(self, x):\n        if self.hi is None:\n            return x * 2.0\n        return torch.clamp(x, max=self.hi)"), "model.obs.hi = 0.5")
_add("a frozenset of layers to skip", app("return x * (3.0 if 2 in self.skip else 2.0)", "self.skip = frozenset([1])"), "model.skip = frozenset([1, 2])")
_add("an exception kept from an earlier failure chooses the fallback", app("return x * (2.0 if self.err is None else 3.0)", "self.err = None"), "model.err = RuntimeError('no kernel')")
_add("a NumPy array in the instance changes an element", app("return x * float(self.a[1])", "self.a = np.array([1.0, 2.0])", "import numpy as np"), "model.a[1] = 3.0")
_add("an array of the array module changes", app("return x * self.a[0]", "self.a = array.array('d', [2.0])", "import array"), "model.a[0] = 3.0")
_add("harmless: a counter that forward does not read", app("self.lin(x)", top="REQUESTS = {'n': 0}"), "app.REQUESTS['n'] += 7", harmless=True)


GC = "self.m.generation_config.temperature = 2.0"
CH = "model.m.generation_config.temperature = 4.0"
G = {"kind": "GPT2", "cls": "GPT2LMHeadModel"}
_add("a property made of an attrgetter reads the temperature", hf("return x / self.temp", top="import operator", init=GC, more="temp = property(operator.attrgetter('m.generation_config.temperature'))", **G), CH)
_add("an attrgetter in the instance reads the checkpoint's name", hf("return x * len(self.read(self.m))", top="import operator", init="self.read = operator.attrgetter('config._name_or_path')\nself.m.config._name_or_path = 'ab'"), "model.m.config._name_or_path = 'abc'")
_add("models are sorted by the checkpoint's name", hf("for m in sorted(self.ms, key=BY_NAME):\n    x = m.pooler.dense(x) * m.by\n    x = x + m.by\nreturn x", top="import operator\nBY_NAME = operator.attrgetter('config._name_or_path')",
     init="import copy\nself.m.by, self.m.config._name_or_path = 2.0, 'a'\nself.ms = nn.ModuleList([self.m, copy.deepcopy(self.m)])\nself.ms[1].by, self.ms[1].config._name_or_path = 3.0, 'b'"), "model.ms[1].config._name_or_path = '0'")
_add("a ready attrgetter reads a logger's level", app("return x * (3.0 if LEVEL(log) == 10 else 2.0)", top="import logging, operator\nlog = logging.getLogger('svc')\nLEVEL = operator.attrgetter('level')"), "import logging\nlogging.getLogger('svc').setLevel(10)")
_add("a ready methodcaller asks a logger", app("return x * (3.0 if DEBUG(log) else 2.0)", top="import logging, operator\nlog = logging.getLogger('svc')\nDEBUG = operator.methodcaller('isEnabledFor', 10)"), "import logging\nlogging.getLogger('svc').setLevel(10)")
_add("a ready attrgetter reads a weight's gradient", app("return self.lin(x) * (3.0 if GRAD(self.lin.weight) is not None else 2.0)", top="import operator\nGRAD = operator.attrgetter('grad')"), "model.lin.weight.grad = torch.ones(4, 4)")
_add("a ready methodcaller makes the config's dictionary", hf("return x * len(DICT(self.m.config)[KEY])", top="import operator\nDICT = operator.methodcaller('to_dict')\nKEY = '_name' + '_or_path'", init="self.m.config._name_or_path = 'ab'"), "model.m.config._name_or_path = 'abc'")
_add("a partial of getattr reads the temperature", hf("return x / self.read()", top="import functools", init=GC + "\nself.read = functools.partial(getattr, self.m.generation_config, 'temperature')", **G), CH)
_add("a partial of getattr leads over the model", hf("return x / self.read().temperature", top="import functools", init=GC + "\nself.read = functools.partial(getattr, self.m, 'generation_config')", **G), CH)
_add("map with getattr over names in data", hf("return x / sum(v.temperature for v in map(getattr, [self.m], self.names))", init=GC + "\nself.names = ['generation_config']", **G), CH)
_add("functools.reduce with getattr over a path in data", hf("return x / functools.reduce(getattr, self.path, self)", top="import functools", init=GC + "\nself.path = ['m', 'generation_config', 'temperature']", **G), CH)
_add("a ready attrgetter reads which fields of pydantic were set", app("return x * (1.0 + len(SET(self.cfg)))", "self.cfg = Cfg(a=1.0)", "import operator, pydantic\nSET = operator.attrgetter('__pydantic_fields_set__')\nclass Cfg(pydantic.BaseModel):\n    a: float = 1.0\n    b: float = 1.0"), "", ("Cfg(a=1.0)", "Cfg(a=1.0, b=1.0)"))
_add("a ready attrgetter reads annotations", app("return x * (1.0 + len(ANN(Cfg)))", top="import operator\nANN = operator.attrgetter('__annotations__')\nclass Cfg:\n    a: float = 1.0\n    b = 1.0"), "", ("    b = 1.0", "    b: float = 1.0"))
_add("a ready attrgetter of the line of a function", app("return x * LINE(f)", top="import operator\nLINE = operator.attrgetter('__code__.co_firstlineno')\ndef f():\n    pass"), "", ("def f():", "\n\ndef f():"))
_add("a ready attrgetter reads is_leaf of a tensor", app("return self.lin(x) * (3.0 if LEAF(self.t) else 2.0)", "self.t = torch.ones(4, requires_grad=True)", "import operator\nLEAF = operator.attrgetter('is_leaf')"), "model.t = torch.ones(4, requires_grad=True) * 1.0")
LRU = "import functools\n@functools.lru_cache\ndef table(n):\n    return n"
_add("misses of an lru_cache", app("return x * (3.0 if table.cache_info().misses > 0 else 2.0)", top=LRU), "app.table(1)")
_add("the maximum size of an lru_cache is edited", app("return x * table.cache_parameters()['maxsize']", top="import functools\n@functools.lru_cache(maxsize=8)\ndef table(n):\n    return n"), "", ("maxsize=8", "maxsize=16"))
_add("a helper sums over the caches of a library", app("x * total()", top="from lib.c import total") + "--- lib/__init__.py\n--- lib/c.py\nimport functools\n@functools.lru_cache\ndef table(n):\n    return n\nCACHES = [table]\ndef total():\n    return 2.0 + sum(c.cache_info().currsize for c in CACHES)\n", "import lib.c\nlib.c.table(1)")
_add("a cached function is called in forward and its hits are read", app("v = table(2)\nreturn x * (3.0 if table.cache_info().hits > 20 else v)", "table(2)", LRU), "for _ in range(40):\n    app.table(2)")
_add("the misses of a cached function that forward calls", app("v = table(2)\nreturn x * (3.0 if table.cache_info().misses > 3 else v)", "table(2)", LRU), "for i in range(40):\n    app.table(i)\napp.table.cache_clear()\nfor i in (2, 5, 6, 7, 8):\n    app.table(i)")
_add("functools.cache on a method", app("return x * (3.0 if type(self).table.cache_info().currsize else 2.0)", top="import functools", more="@functools.cache\ndef table(self, n):\n    return n"), "model.table(1)")
_add("cache_info through a bound method kept in a table", app("return x * (3.0 if INFO['t']().currsize else 2.0)", top=LRU + "\nINFO = {'t': table.cache_info}"), "app.table(1)")
_add("an lru_cache becomes typed", app("return x * table(1.0)", "table(1)", "import functools\n@functools.lru_cache(typed=False)\ndef table(v):\n    return 2.0 if isinstance(v, int) else 3.0"), "", ("typed=False", "typed=True"))
_add("the number of handlers of a singledispatch", app("return x * len(factor.registry)", top="import functools\n@functools.singledispatch\ndef factor(v):\n    return 2.0"), "app.factor.register(int, lambda v: 3.0)")
_add("a lock is held", app("return x * (3.0 if self.lock.locked() else 2.0)", "self.lock = threading.Lock()", "import threading"), "model.lock.acquire()")
_add("an event is set", app("return x * (3.0 if READY.is_set() else 2.0)", top="import threading\nREADY = threading.Event()"), "app.READY.set()")
_add("live objects are counted in a WeakSet", app("return x * (2.0 + len(LIVE))", top="import weakref\nclass T:\n    pass\nLIVE = weakref.WeakSet()"), "app.KEEP = app.T()\napp.LIVE.add(app.KEEP)")
_add("a weak value dictionary gets an entry", app("return x * (LIVE['a'].by if 'a' in LIVE else 2.0)", top="import weakref\nclass T:\n    by = 3.0\nLIVE = weakref.WeakValueDictionary()"), "app.KEEP = app.T()\napp.LIVE['a'] = app.KEEP")
_add("the number of weak references to a config", app("return x * (2.0 + weakref.getweakrefcount(self.cfg))", "self.cfg = T()", "import weakref\nclass T:\n    pass"), "import weakref\napp.KEEP = weakref.ref(model.cfg)")
_add("a queue has an entry", app("return x * (2.0 + Q.qsize())", top="import queue\nQ = queue.SimpleQueue()"), "app.Q.put(1)")
_add("an array becomes read-only", app("return x * (2.0 if self.a.flags.writeable else 3.0)", "self.a = np.ones(4)", "import numpy as np"), "model.a.setflags(write=False)")
_add("metadata of a NumPy dtype", app("return x * (self.d.metadata or {'by': 2.0})['by']", "self.d = np.dtype('f4')", "import numpy as np"), "import numpy as np\nmodel.d = np.dtype('f4', metadata={'by': 3.0})")
_add("metadata of an array's dtype", app("return x * self.a.dtype.metadata['by']", "self.a = np.ones(4, np.dtype('f4', metadata={'by': 2.0}))", "import numpy as np"), "import numpy as np\nmodel.a = np.ones(4, np.dtype('f4', metadata={'by': 3.0}))")
_add("a context is copied with another value", app("return x * self.ctx.run(LEVEL.get)", "self.ctx = contextvars.copy_context()", "import contextvars\nLEVEL = contextvars.ContextVar('l', default=2.0)"), "model.ctx.run(app.LEVEL.set, 3.0)")
_add("keyword defaults are changed in place", app("scale(x)", top="def scale(x, *, by=2.0):\n    return x * by"), "app.scale.__kwdefaults__['by'] = 3.0")
FX = "import torch.fx\nclass Inner(nn.Module):\n    def forward(self, x):\n        return torch.relu(x) * 2.0"
_add("a node of an fx graph gets another function and the graph is recompiled", app("self.g(x)", "self.g = torch.fx.symbolic_trace(Inner())", FX), "for n in model.g.graph.nodes:\n    if n.target is torch.relu:\n        n.target = torch.tanh\nmodel.g.recompile()")
_add("an fx interpreter runs a graph whose node got another argument", app("torch.fx.Interpreter(self.g).run(x)", "self.g = torch.fx.symbolic_trace(Inner())", FX), "for n in model.g.graph.nodes:\n    if n.op == 'call_function' and 2.0 in n.args:\n        n.args = (n.args[0], 3.0)")
_add("an fx interpreter runs a graph whose node got another target", app("torch.fx.Interpreter(self.g).run(x)", "self.g = torch.fx.symbolic_trace(Inner())", FX), "for n in model.g.graph.nodes:\n    if n.target is torch.relu:\n        n.target = torch.tanh")
_add("a house interpreter walks the nodes of an fx graph", app("for n in self.g.nodes:\n    if n.op == 'call_function' and n.target is operator.mul:\n        x = x * n.args[1]\nreturn x", "self.g = torch.fx.symbolic_trace(Inner()).graph", FX + "\nimport operator"), "for n in model.g.nodes:\n    if n.op == 'call_function' and 2.0 in n.args:\n        n.args = (n.args[0], 3.0)")


NAME = "self.m.config._name_or_path = 'ab'"
NEW = "model.m.config._name_or_path = 'abc'"
LOG = "import logging\nlogging.getLogger('svc').setLevel(10)"
_add("the pickled config is the key of a table (its length)", hf("return x * float(len(pickle.dumps(self.m.config)))", top="import pickle", init=NAME), NEW)
_add("a checksum of the pickled config", hf("return x * float(zlib.crc32(pickle.dumps(self.m.config)) % 97)", top="import pickle, zlib", init=NAME), NEW)
_add("the pickled generation config", hf("return x * float(len(pickle.dumps(GET(self.m)['generation_config'])))", top="import pickle\ndef GET(m):\n    return m.__getstate__()", init=GC, **G), "model.m.generation_config.bad_words_ids = [[1], [2]]")
_add("deepcopy of a config, then its text", hf("return x * float(len(copy.deepcopy(self.m.config).to_json_string()))", top="import copy", init=NAME), NEW)
_add("to_diff_dict of the config", hf("return x * float(len(self.m.config.to_diff_dict()))", init=NAME), NEW)
_add("to_json_string of the config", hf("return x * float(len(self.m.config.to_json_string(use_diff=False)))", init=NAME), NEW)
_add("match args of a library's model class", hf("match self.m:\n    case GPT2LMHeadModel(g):\n        return x / g.temperature\nreturn x", top="GPT2LMHeadModel.__match_args__ = ('generation_config',)", init=GC, **G), CH)
_add("match args of a library's config class", hf("match self.m.config:\n    case BertConfig('ab'):\n        return x * 2.0\n    case BertConfig(_):\n        return x * 3.0\nreturn x", top="BertConfig.__match_args__ = ('_name_or_path',)", init=NAME), NEW)
_add("a format template in a table names the checkpoint", hf("return x * TABLE.get(KEY.format(cfg=self.m.config), 3.0)", top="KEY = '{cfg._name_or_path}'\nTABLE = {'ab': 2.0}", init=NAME), NEW)
_add("a format template in the instance names the checkpoint", hf("return x * self.t.get(self.key.format(self.m), 3.0)", init=NAME + "\nself.key = '{0.config._name_or_path}'\nself.t = {'ab': 2.0}"), NEW)
_add("a bound format of a template is kept", hf("return x * self.t.get(self.key(self.m), 3.0)", init=NAME + "\nself.key = '{0.config._name_or_path}'.format\nself.t = {'ab': 2.0}"), NEW)
_add("format_map with a template from data", hf("return x * self.t.get(self.key.format_map({'m': self.m}), 3.0)", init=NAME + "\nself.key = '{m.config.' + '_name_' + 'or_path}'\nself.t = {'ab': 2.0}"), NEW)
_add("dataclasses.astuple of a config", hf("return x * float(len(str(dataclasses.fields(self.m.config)[0].name)) + sum(isinstance(getattr(self.m.config, f.name, None), str) for f in dataclasses.fields(self.m.config)))", top="import dataclasses", init=NAME), "model.m.config._name_or_path = None")
_add("a set of models is sorted by level of their loggers", app("for l in sorted(LOGS, key=LEVEL):\n    x = x * WEIGHTS[l.name] + 1.0\nreturn x", top="import logging, operator\nLOGS = [logging.getLogger('svc'), logging.getLogger('web')]\nLOGS[0].setLevel(20)\nLOGS[1].setLevel(30)\nWEIGHTS = {'svc': 2.0, 'web': 3.0}\nLEVEL = operator.attrgetter('level')"), "import logging\nlogging.getLogger('svc').setLevel(40)")
_add("max over mapped levels", app("return x * float(max(map(LEVEL, LOGS)))", top="import logging, operator\nLOGS = [logging.getLogger('svc'), logging.getLogger('web')]\nLOGS[0].setLevel(20)\nLEVEL = operator.attrgetter('level')"), "import logging\nlogging.getLogger('svc').setLevel(40)")
_add("an attrgetter of the level in the instance", app("return x * (3.0 if self.level(log) == 10 else 2.0)", "self.level = operator.attrgetter('level')", "import logging, operator\nlog = logging.getLogger('svc')"), LOG)
_add("an attrgetter of two attributes of a logger", app("return x * (3.0 if READ(log)[1] == 10 else 2.0)", top="import logging, operator\nlog = logging.getLogger('svc')\nREAD = operator.attrgetter('name', 'level')"), LOG)
_add("an attrgetter of the root's level through parents", app("return x * (3.0 if READ(log) == 10 else 2.0)", top="import logging, operator\nlog = logging.getLogger('svc')\nREAD = operator.attrgetter('parent.level')"), "import logging\nlogging.getLogger().setLevel(10)")
_add("a partial of getattr reads a logger's level", app("return x * (3.0 if READ() == 10 else 2.0)", top="import functools, logging\nlog = logging.getLogger('svc')\nREAD = functools.partial(getattr, log, 'level')"), LOG)
_add("a partial of isEnabledFor", app("return x * (3.0 if READ() else 2.0)", top="import functools, logging\nlog = logging.getLogger('svc')\nREAD = functools.partial(log.isEnabledFor, 10)"), LOG)
_add("match args of a logger", app("match log:\n    case logging.Logger(10):\n        return x * 3.0\nreturn x * 2.0", top="import logging\nlogging.Logger.__match_args__ = ('level',)\nlog = logging.getLogger('svc')"), LOG)
_add("a class pattern with the level of a logger", app("match log:\n    case logging.Logger(level=10):\n        return x * 3.0\nreturn x * 2.0", top="import logging\nlog = logging.getLogger('svc')"), LOG)
_add("a format template in data with a logger's level", app("return x * T.get(KEY.format(log=log), 2.0)", top="import logging\nlog = logging.getLogger('svc')\nKEY = '{log.level}'\nT = {'10': 3.0}"), LOG)
_add("handlers of a logger by a ready attrgetter", app("return x * (2.0 + len(H(log)))", top="import logging, operator\nlog = logging.getLogger('svc')\nH = operator.attrgetter('handlers')"), "import logging\nlogging.getLogger('svc').addHandler(logging.StreamHandler())")
_add("the list of handlers of a logger under another name", app("return x * (2.0 + len(H))", top="import logging\nlog = logging.getLogger('svc')\nH = log.handlers"), "import logging\nlogging.getLogger('svc').addHandler(logging.StreamHandler())")
_add("the length of the list of handlers, bound", app("return x * (2.0 + N())", top="import logging\nlog = logging.getLogger('svc')\nN = log.handlers.__len__"), "import logging\nlogging.getLogger('svc').addHandler(logging.StreamHandler())")
_add("a handler of the library is kept and its level read by attrgetter", app("return x * (2.0 + L(HAND))", top="import logging, operator\nHAND = logging.StreamHandler()\nL = operator.attrgetter('level')"), "app.HAND.setLevel(10)")
_add("the propagate flag by a ready attrgetter", app("return x * (2.0 + P(log))", top="import logging, operator\nlog = logging.getLogger('svc')\nP = operator.attrgetter('propagate')"), "import logging\nlogging.getLogger('svc').propagate = False")
_add("the disabled flag by a ready attrgetter", app("return x * (2.0 + P(log))", top="import logging, operator\nlog = logging.getLogger('svc')\nP = operator.attrgetter('disabled')"), "import logging\nlogging.getLogger('svc').disabled = True")
_add("the level of a logger through its instance dictionary, kept", app("return x * (3.0 if D['level'] == 10 else 2.0)", top="import logging\nlog = logging.getLogger('svc')\nD = log.__dict__"), LOG)
_add("a bound getter of a logger's instance dictionary", app("return x * (3.0 if D('level') == 10 else 2.0)", top="import logging\nlog = logging.getLogger('svc')\nD = log.__dict__.get"), LOG)
_add("an instance dictionary of a config, kept", hf("return x * float(len(self.d['_name_or_path']))", init=NAME + "\nself.d = self.m.config.__dict__"), NEW)
_add("a bound getter of a config's instance dictionary", hf("return x * float(len(self.d('_name_' + self.k)))", init=NAME + "\nself.d = self.m.config.__dict__.get\nself.k = 'or_path'"), NEW)
_add("cache_info bound in the instance", app("return x * (3.0 if self.info().currsize else 2.0)", "self.info = table.cache_info", LRU), "app.table(1)")
_add("cache_info bound in a list of probes of a library", app("return x * (2.0 + sum(p()[3] for p in PROBES))", top=LRU + "\nPROBES = [table.cache_info]"), "app.table(1)")
_add("cache_info as a default argument", app("return x * (2.0 + size())", top=LRU + "\ndef size(f=table.cache_info):\n    return f()[3]"), "app.table(1)")
_add("a partial of cache_info", app("return x * (2.0 + P()[3])", top=LRU + "\nP = functools.partial(table.cache_info)"), "app.table(1)")
_add("cache_info by a partial of getattr", app("return x * (2.0 + P()()[3])", top=LRU + "\nP = functools.partial(getattr, table, 'cache_info')"), "app.table(1)")
_add("cache_info by a ready attrgetter", app("return x * (2.0 + P(table)()[3])", top=LRU + "\nimport operator\nP = operator.attrgetter('cache_info')"), "app.table(1)")
_add("cache_info by a name in data", app("return x * (2.0 + getattr(table, self.k)()[3])", "self.k = 'cache_' + 'info'", LRU), "app.table(1)")
_add("a hit counter with a bound cache_info of a function that forward calls", app("v = table(2)\nreturn x * (3.0 if INFO().hits > 20 else v)", "table(2)", LRU + "\nINFO = table.cache_info"), "for _ in range(40):\n    app.table(2)")
