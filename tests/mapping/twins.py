"""A small decoder of transformers, and the same computation with fused weights and names of another house.

``FusedDecoder`` takes over the weights of a Llama or Qwen2: one projection for q, k and v (plain, or interleaved by
query group as Megatron keeps it), one for gate and up. Loss and gradients are those of the original, but for rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, GROUPS = 64, 32, 48, 2, 4, 2


def small_decoder(family: str = "llama", **changes: Any) -> Any:
    """Makes a decoder of transformers with random weights."""
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        **changes,
    }
    kinds = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    }
    config_class, model_class = kinds[family]
    torch.manual_seed(0)
    model = model_class(config_class(**sizes, attn_implementation="eager"))
    for parameter in model.parameters():  # biases and norms too: nothing constant
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=float(parameter.detach().mean().round()), std=0.1)
    return model


class RMSNorm(nn.Module):
    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(weight.clone()), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (x.float() * scale).to(x.dtype)


class SelfAttention(nn.Module):
    """Attention with one projection for queries, keys and values."""

    def __init__(self, attention: Any, *, interleaved: bool) -> None:
        super().__init__()
        self.interleaved, self.num_query_groups = interleaved, GROUPS
        parts = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.linear_qkv = fused(parts, groups=GROUPS if interleaved else 1)
        self.linear_proj = copied(attention.o_proj)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        size = HIDDEN // HEADS
        mixed = self.linear_qkv(x)
        if self.interleaved:
            grouped = mixed.view(batch, length, GROUPS, -1)
            widths = [HEADS // GROUPS * size, size, size]
            q, k, v = (part.reshape(batch, length, -1, size) for part in grouped.split(widths, -1))
        else:
            widths = [HEADS * size, GROUPS * size, GROUPS * size]
            q, k, v = (part.reshape(batch, length, -1, size) for part in mixed.split(widths, -1))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        q, k = (part * cos + rotated(part) * sin for part in (q, k))
        k, v = (part.repeat_interleave(HEADS // GROUPS, dim=1) for part in (k, v))
        mask = torch.full((length, length), torch.finfo(x.dtype).min).triu(1)
        scores = functional.softmax(q @ k.transpose(2, 3) * size**-0.5 + mask, dim=-1, dtype=torch.float32)
        return self.linear_proj((scores.to(x.dtype) @ v).transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """A gated feed-forward network with one projection for gate and up."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.linear_fc1 = fused([mlp.gate_proj, mlp.up_proj])
        self.linear_fc2 = copied(mlp.down_proj)
        self.activation = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.linear_fc1(x).chunk(2, dim=-1)
        return self.linear_fc2(self.activation(gate) * up)


class Block(nn.Module):
    def __init__(self, layer: Any, *, interleaved: bool) -> None:
        super().__init__()
        eps = layer.input_layernorm.variance_epsilon
        self.input_norm = RMSNorm(layer.input_layernorm.weight, eps)
        self.self_attention = SelfAttention(layer.self_attn, interleaved=interleaved)
        self.pre_mlp_norm = RMSNorm(layer.post_attention_layernorm.weight, eps)
        self.ffn = FeedForward(layer.mlp)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attention(self.input_norm(x), cos, sin)
        return x + self.ffn(self.pre_mlp_norm(x))


class Blocks(nn.Module):
    """All layers and the norm after them."""

    def __init__(self, model: Any, *, interleaved: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(layer, interleaved=interleaved) for layer in model.layers)
        self.final_norm = RMSNorm(model.norm.weight, model.norm.variance_epsilon)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.final_norm(x)


class FusedDecoder(nn.Module):
    """The same decoder, written otherwise."""

    def __init__(self, model: Any, *, interleaved: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(model.model.embed_tokens.weight.clone(), freeze=False)
        self.decoder = Blocks(model.model, interleaved=interleaved)
        self.output_layer = copied(model.lm_head)
        self.rotary = model.model.rotary_emb.__class__(model.config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        cos, sin = (part[:, None] for part in self.rotary(x, torch.arange(tokens.shape[1])[None]))
        return self.output_layer(self.decoder(x, cos, sin))


def fused(parts: list[nn.Linear], groups: int = 1) -> nn.Linear:
    """Makes one layer of several that share their input."""
    made = nn.Linear(parts[0].in_features, sum(p.out_features for p in parts), bias=parts[0].bias is not None)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            cut = [getattr(part, name).unflatten(0, (groups, -1)) for part in parts]
            parameter.copy_(torch.cat(cut, dim=1).flatten(0, 1))
    return made


def copied(layer: nn.Linear) -> nn.Linear:
    return fused([layer])


def rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def train(model: Any, steps: int = 1, *, before: object = None) -> None:
    """Trains on fixed tokens; the logits are those of either house."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        tokens = torch.randint(0, VOCABULARY, (2, 6), generator=generator)
        output = model(tokens)
        logits = getattr(output, "logits", output)
        functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
