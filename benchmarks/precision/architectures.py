"""The models of PrecisionBench, and where each kind of part lies in them.

All are small, start from weights that look trained (no zero biases, no norms of ones) and follow from one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from benchmarks.precision.decoder import Decoder
from benchmarks.precision.vision import VisionTransformer

HIDDEN = 64
LAYERS = 3
VOCABULARY = 211
TOKENS = 24
CLASSES = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """What one micro-step is fed with: keyword arguments of the model, and targets."""

    inputs: dict[str, torch.Tensor]
    targets: torch.Tensor

    def split(self, parts: int) -> tuple[Batch, ...]:
        """Cuts the batch along the sample axis into equal parts."""
        pieces = {name: tensor.chunk(parts) for name, tensor in self.inputs.items()}
        targets = self.targets.chunk(parts)
        return tuple(Batch({name: pieces[name][i] for name in pieces}, targets[i]) for i in range(parts))


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family of models. ``parts`` maps a kind of part to its path, with ``{i}`` for the layer."""

    name: str
    build: Callable[..., nn.Module]
    batch: Callable[[torch.Generator, int], Batch]
    parts: Mapping[str, str] = field(default_factory=dict)
    layers: int = LAYERS

    def __reduce__(self) -> tuple[Callable[[str], Architecture], tuple[str]]:
        """Travels to other processes by its name."""
        return architecture_named, (self.name,)

    def has(self, part: str) -> bool:
        return part in self.parts

    def path(self, part: str, layer: int = 0) -> str:
        """Gives the module path of a part in a layer."""
        return self.parts[part].replace("{i}", str(layer))

    def model(self, seed: int, **options: Any) -> nn.Module:
        """Builds the model with weights that follow from the seed, in training mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.build(**options)
            _look_trained(model)
        return model.train()


def logits(output: object) -> torch.Tensor:
    """Takes the logits out of a model's result."""
    found = output if isinstance(output, torch.Tensor) else output.logits  # type: ignore[attr-defined]
    assert isinstance(found, torch.Tensor)
    return found


@torch.no_grad()
def _look_trained(model: nn.Module) -> None:
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name.endswith("bias"):
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif parameter.dim() == 1:
                parameter.mul_(1 + 0.2 * torch.randn_like(parameter))
            elif isinstance(module, nn.Linear):
                parameter.copy_(torch.randn_like(parameter) * parameter.shape[1] ** -0.5)


def _llama(**options: Any) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: dict[str, Any] = {"attn_implementation": "eager", **options}
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=160, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64, rms_norm_eps=1e-5,
        tie_word_embeddings=False, use_cache=False, pad_token_id=None, **settings,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def _qwen2(**options: Any) -> nn.Module:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    settings: dict[str, Any] = {"attn_implementation": "eager", **options}
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=160, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-6,
        tie_word_embeddings=True, use_cache=False, pad_token_id=None, **settings,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def _decoder(**options: Any) -> nn.Module:
    return Decoder(vocabulary=VOCABULARY, hidden=HIDDEN, layers=LAYERS, tokens=TOKENS, **options)


def _vision(**options: Any) -> nn.Module:
    return VisionTransformer(hidden=HIDDEN, layers=LAYERS, classes=CLASSES, **options)


def _text(generator: torch.Generator, size: int) -> Batch:
    tokens = torch.randint(VOCABULARY, (size, TOKENS + 1), generator=generator)
    return Batch({"input_ids": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous())


def _positioned_text(generator: torch.Generator, size: int) -> Batch:
    plain = _text(generator, size)
    positions = torch.arange(TOKENS).expand(size, TOKENS).contiguous()
    return Batch({**plain.inputs, "position_ids": positions}, plain.targets)


def _images(generator: torch.Generator, size: int) -> Batch:
    pixels = torch.randn(size, 3, 16, 16, generator=generator)
    return Batch({"pixels": pixels}, torch.randint(CLASSES, (size,), generator=generator))


_LLAMA_PARTS = {
    "block": "model.layers.{i}",
    "attention": "model.layers.{i}.self_attn",
    "query": "model.layers.{i}.self_attn.q_proj",
    "key": "model.layers.{i}.self_attn.k_proj",
    "attention_out": "model.layers.{i}.self_attn.o_proj",
    "square": "model.layers.{i}.self_attn.o_proj",
    "mlp": "model.layers.{i}.mlp",
    "mlp_in": "model.layers.{i}.mlp.up_proj",
    "activation": "model.layers.{i}.mlp.act_fn",
    "mlp_out": "model.layers.{i}.mlp.down_proj",
    "norm": "model.layers.{i}.post_attention_layernorm",
    "buffered": "model.rotary_emb",
    "embedding": "model.embed_tokens",
    "head": "lm_head",
}
_PLAIN_PARTS = {
    "block": "blocks.{i}",
    "attention": "blocks.{i}.attention",
    "query": "blocks.{i}.attention.query",
    "key": "blocks.{i}.attention.key",
    "attention_out": "blocks.{i}.attention.out",
    "square": "blocks.{i}.attention.value",
    "biased": "blocks.{i}.mlp.fc",
    "mlp": "blocks.{i}.mlp",
    "mlp_in": "blocks.{i}.mlp.fc",
    "activation": "blocks.{i}.mlp.act",
    "mlp_out": "blocks.{i}.mlp.proj",
    "norm": "blocks.{i}.norm2",
    "head": "head",
}

ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (
        Architecture("llama", _llama, _positioned_text, {**_LLAMA_PARTS, "swappable": _LLAMA_PARTS["attention"]}),
        Architecture("qwen2", _qwen2, _positioned_text, {**_LLAMA_PARTS, "biased": _LLAMA_PARTS["query"]}),
        Architecture(
            "decoder",
            _decoder,
            _text,
            {
                **_PLAIN_PARTS,
                "swappable": "blocks.{i}.attention",
                "buffered": "blocks.{i}.attention",
                "dropout": "blocks.{i}.mlp.drop",
                "positioned": "wpe",
                "embedding": "wte",
            },
        ),
        Architecture(
            "vision",
            _vision,
            _images,
            {**_PLAIN_PARTS, "swappable": "blocks.{i}.attention", "buffered": "stem.norm", "positioned": "blocks.0"},
        ),
    )
}


def architecture_named(name: str) -> Architecture:
    """Finds an architecture."""
    return ARCHITECTURES[name]
