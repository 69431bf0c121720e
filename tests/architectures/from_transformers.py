"""Architectures of transformers: each a model class, the configuration of a small one, and inputs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tests.architectures.architecture import BATCH, TOKENS, VOCABULARY, floats, ids, image

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.architectures.architecture import Call

_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_TEXT = {"vocab_size": VOCABULARY, **_SIZES, "max_position_embeddings": 32, **_SPECIAL}
_GQA = {**_TEXT, "num_attention_heads": 4, "num_key_value_heads": 2}
_MOE = {**_GQA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_GPT = {"vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2, **_SPECIAL}
_PATCHES = {**_SIZES, "image_size": 32, "patch_size": 8}
_STAGES = {"depths": [1, 2], "hidden_sizes": [8, 16]}
_SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 32,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    **_SPECIAL,
}
_SPEECH = {
    **_SIZES,
    "vocab_size": VOCABULARY,
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 8),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_T5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 2, **_SPECIAL}
_CLIP = {
    "text_config": {**_TEXT, "projection_dim": 16},
    "vision_config": {**_PATCHES, "projection_dim": 16},
    "projection_dim": 16,
}


def _text() -> dict[str, Any]:
    return {"input_ids": ids(), "attention_mask": torch.ones_like(ids()).index_fill(1, torch.tensor(TOKENS - 1), 0)}


def _tokens() -> dict[str, Any]:
    return {"input_ids": ids()}


def _causal() -> dict[str, Any]:
    return {"input_ids": ids(), "use_cache": False}


def _pixels() -> dict[str, Any]:
    return {"pixel_values": image()}


def _large_pixels() -> dict[str, Any]:
    return {"pixel_values": image(64)}


def _both() -> dict[str, Any]:
    return {"input_ids": ids(), "decoder_input_ids": ids(5), "use_cache": False}


def _waves() -> dict[str, Any]:
    return {"input_values": floats(800)}


def _mel() -> dict[str, Any]:
    return {"input_features": floats(8, 20), "decoder_input_ids": ids(5), "use_cache": False}


def _spectrogram() -> dict[str, Any]:
    return {"input_values": floats(32, 16)}


def _pairs() -> dict[str, Any]:
    return {**_text(), **_pixels()}


def _series() -> dict[str, Any]:
    return {"past_values": floats(32, 3)}


def _boxes() -> dict[str, Any]:
    corner = torch.arange(TOKENS).expand(BATCH, TOKENS)
    return {"input_ids": ids(), "bbox": torch.stack((corner, corner, corner + 5, corner + 7), dim=-1)}


def _video() -> dict[str, Any]:
    return {"pixel_values": floats(4, 3, 32, 32)}


def _steps() -> dict[str, Any]:
    steps = torch.arange(6).expand(BATCH, 6).contiguous()
    return {
        "states": floats(6, 5),
        "actions": floats(6, 3),
        "rewards": floats(6, 1),
        "returns_to_go": floats(6, 1),
        "timesteps": steps,
        "attention_mask": torch.ones(BATCH, 6),
    }


_ROWS: dict[str, tuple[str, dict[str, Any], Callable[[], dict[str, Any]]]] = {
    # Encoders of text.
    "bert": ("BertModel", _TEXT, _text),
    "roberta": ("RobertaModel", _TEXT, _text),
    "xlm-roberta": ("XLMRobertaForSequenceClassification", _TEXT, _text),
    "distilbert": (
        "DistilBertModel",
        {**_SPECIAL, "vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
        _text,
    ),
    "albert": ("AlbertModel", {**_TEXT, "embedding_size": 16}, _text),
    "electra": ("ElectraModel", {**_TEXT, "embedding_size": 16}, _text),
    "mpnet": ("MPNetModel", _TEXT, _text),
    "deberta": ("DebertaModel", {**_TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, _text),
    "deberta-v2": ("DebertaV2Model", {**_TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, _text),
    "convbert": ("ConvBertModel", {**_TEXT, "embedding_size": 32, "head_ratio": 1}, _text),
    "squeezebert": (
        "SqueezeBertModel",
        {
            **_TEXT,
            "embedding_size": 32,
            **{f"{part}_groups": 2 for part in ("q", "k", "v", "intermediate", "output", "post_attention")},
        },
        _text,
    ),
    "mobilebert": (
        "MobileBertModel",
        {**_TEXT, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
        _text,
    ),
    "roformer": ("RoFormerModel", {**_TEXT, "embedding_size": 32}, _text),
    "rembert": ("RemBertModel", {**_TEXT, "input_embedding_size": 16}, _text),
    "megatron-bert": ("MegatronBertModel", _TEXT, _text),
    "fnet": ("FNetModel", {**_TEXT, "type_vocab_size": 2}, _tokens),
    "xlnet": (
        "XLNetModel",
        {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, **_SPECIAL},
        _tokens,
    ),
    "funnel": (
        "FunnelModel",
        {
            "vocab_size": VOCABULARY,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
            "d_model": 32,
            "n_head": 2,
            "d_head": 16,
            "d_inner": 64,
        },
        _text,
    ),
    "longformer": ("LongformerModel", {**_TEXT, "attention_window": 4}, _text),
    "modernbert": ("ModernBertModel", {**_TEXT, "local_attention": 4, "cls_token_id": 1, "sep_token_id": 2}, _text),
    "esm": ("EsmModel", {**_TEXT, "position_embedding_type": "rotary", "mask_token_id": 4}, _text),
    "layoutlm": ("LayoutLMModel", _TEXT, _boxes),
    "canine": (
        "CanineModel",
        {
            **_SIZES,
            **_SPECIAL,
            "max_position_embeddings": 64,
            "num_hash_functions": 2,
            "num_hash_buckets": 16,
            "local_transformer_stride": 8,
            "downsampling_rate": 2,
        },
        lambda: {"input_ids": ids(16)},
    ),
    # Causal language models.
    "gpt2": ("GPT2LMHeadModel", _GPT, _causal),
    "gpt-neo": (
        "GPTNeoForCausalLM",
        {**_TEXT, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4},
        _causal,
    ),
    "gptj": ("GPTJForCausalLM", {**_GPT, "rotary_dim": 8}, _causal),
    "gpt-neox": ("GPTNeoXForCausalLM", _TEXT, _causal),
    "opt": ("OPTForCausalLM", {**_TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}, _causal),
    "bloom": (
        "BloomForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 2, **_SPECIAL},
        _causal,
    ),
    "llama": ("LlamaForCausalLM", _GQA, _causal),
    "mistral": ("MistralForCausalLM", {**_GQA, "sliding_window": 4}, _causal),
    "mixtral": ("MixtralForCausalLM", {**_GQA, "num_local_experts": 4, "num_experts_per_tok": 2}, _causal),
    "qwen2": ("Qwen2ForCausalLM", _GQA, _causal),
    "qwen2-moe": ("Qwen2MoeForCausalLM", {**_MOE, "shared_expert_intermediate_size": 32}, _causal),
    "qwen3": ("Qwen3ForCausalLM", {**_GQA, "head_dim": 8}, _causal),
    "gemma": ("GemmaForCausalLM", {**_GQA, "head_dim": 8}, _causal),
    "gemma2": ("Gemma2ForCausalLM", {**_GQA, "head_dim": 8, "sliding_window": 4}, _causal),
    "gemma3": ("Gemma3ForCausalLM", {**_GQA, "head_dim": 8, "sliding_window": 4}, _causal),
    "phi": ("PhiForCausalLM", _TEXT, _causal),
    "phi3": ("Phi3ForCausalLM", _GQA, _causal),
    "falcon": ("FalconForCausalLM", {**_TEXT, "new_decoder_architecture": True, "num_kv_heads": 1}, _causal),
    "mpt": (
        "MptForCausalLM",
        {"vocab_size": VOCABULARY, "d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 32},
        _causal,
    ),
    "stablelm": ("StableLmForCausalLM", _GQA, _causal),
    "starcoder2": ("Starcoder2ForCausalLM", _GQA, _causal),
    "olmo2": ("Olmo2ForCausalLM", _GQA, _causal),
    "cohere": ("CohereForCausalLM", _GQA, _causal),
    "nemotron": ("NemotronForCausalLM", _GQA, _causal),
    "biogpt": ("BioGptForCausalLM", _TEXT, _causal),
    "codegen": ("CodeGenForCausalLM", {**_GPT, "n_head": 4, "rotary_dim": 4}, _causal),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM",
        {
            **_TEXT,
            "num_key_value_heads": 2,
            "q_lora_rank": 16,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
        },
        _causal,
    ),
    "mamba": (
        "MambaForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, **_SPECIAL},
        _causal,
    ),
    # Encoders with decoders.
    "t5": ("T5ForConditionalGeneration", {**_T5, "decoder_start_token_id": 0}, _both),
    "bart": ("BartForConditionalGeneration", _SEQ2SEQ, _both),
    "pegasus": ("PegasusForConditionalGeneration", _SEQ2SEQ, _both),
    "m2m-100": ("M2M100ForConditionalGeneration", _SEQ2SEQ, _both),
    # Images, and images with text.
    "vit": ("ViTModel", _PATCHES, _pixels),
    "beit": ("BeitModel", _PATCHES, _pixels),
    "dinov2": ("Dinov2Model", _PATCHES, _pixels),
    "swin": (
        "SwinModel",
        {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4},
        _pixels,
    ),
    "convnext": ("ConvNextModel", {**_STAGES, "num_stages": 2}, _pixels),
    "resnet": ("ResNetModel", {**_STAGES, "embedding_size": 8, "layer_type": "basic"}, _pixels),
    "segformer": (
        "SegformerForSemanticSegmentation",
        {
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 8, 16, 16],
            "num_attention_heads": [1, 1, 2, 2],
            "decoder_hidden_size": 16,
        },
        _large_pixels,
    ),
    "mobilevit": (
        "MobileViTModel",
        {
            "image_size": 32,
            "hidden_sizes": [16, 16, 16],
            "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32],
            "num_attention_heads": 2,
        },
        _pixels,
    ),
    "clip": ("CLIPModel", _CLIP, _pairs),
    "videomae": ("VideoMAEModel", {**_PATCHES, "num_frames": 4}, _video),
    # Sound, series of numbers, decisions.
    "wav2vec2": ("Wav2Vec2Model", _SPEECH, _waves),
    "hubert": ("HubertModel", _SPEECH, _waves),
    "wavlm": ("WavLMModel", _SPEECH, _waves),
    "audio-spectrogram-transformer": (
        "ASTModel",
        {**_SIZES, "patch_size": 8, "num_mel_bins": 16, "max_length": 32, "frequency_stride": 8, "time_stride": 8},
        _spectrogram,
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        {**_SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16},
        _mel,
    ),
    "patchtst": (
        "PatchTSTForPrediction",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 16,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "num_hidden_layers": 2,
            "prediction_length": 4,
        },
        _series,
    ),
    "decision-transformer": (
        "DecisionTransformerModel",
        {
            "state_dim": 5,
            "act_dim": 3,
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 2,
            "max_ep_len": 16,
            "n_positions": 32,
            "vocab_size": 1,
        },
        _steps,
    ),
}


def _make(row: str) -> Call:
    import transformers

    class_name, sizes, inputs = _ROWS[row]
    model_class = getattr(transformers, class_name)
    return model_class(model_class.config_class(**sizes)), (), inputs()


ARCHITECTURES: dict[str, Callable[[], Call]] = {name: partial(_make, name) for name in _ROWS}
