"""Ready mappings between implementations of one model, so that nobody writes them anew.

Each is the text of a mapping file. A rule that speaks of nothing in the two runs at hand is left out, so one set serves
a whole family of models. Where no file is given, the set that explains the most is chosen, in either direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msprobe.core.errors import MappingError
from msprobe.core.matching.mapping import Mapping, Rule, fill, pattern
from msprobe.core.matching.mapping_file import parse_mapping
from msprobe.core.matching.names import normalise
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from msprobe.core.matching.nodes import Matcher

#: Begins the place of every rule of a ready mapping.
READY: Final = "ready mapping"

#: Names that fit are no proof that the models are the ones that a set was written for.
_CONFIDENCE: Final = 0.9


class ReadyMapping:
    """The rules between two implementations, by name: ``rules`` is the text of a mapping file."""

    def __init__(self, name: str, rules: str) -> None:
        self.name = name
        self.rules = rules

    @cached_property
    def mapping(self) -> Mapping:
        """The rules, read.

        Raises:
            MappingError: They are not well formed.
        """
        made = parse_mapping(self.rules, f"{READY} {self.name}")
        made.is_ready = True
        return made


@dataclass(frozen=True, slots=True)
class Fitting:
    """A ready mapping as far as it speaks of two runs, and how many nodes of the candidate it explains."""

    mapping: Mapping
    explained: int


def fit(mapping: Mapping, candidate: Sequence[Node], reference: Sequence[Node]) -> Fitting:
    """Leaves out the rules that find no partner in the two graphs."""
    names = tuple(_modules(nodes) for nodes in (candidate, reference))
    explained: set[str] = set()
    kept = []
    for rule in mapping.rules:
        found = _explained(rule, names[0], names[1])
        if found:
            kept.append(replace(rule, confidence=min(rule.confidence, _CONFIDENCE)))
            explained |= found
    made = Mapping(kept, mapping.source, class_rules=mapping.class_rules, tokens=mapping.tokens)
    return Fitting(made, len(explained))


def choose(ready: Iterable[Mapping], matcher: Matcher) -> Mapping | None:
    """Gives the ready mapping that explains the most free nodes of two graphs, read in the direction that fits."""
    left = [matcher.candidate[index] for index in matcher.free_candidates()]
    right = [matcher.reference[index] for index in matcher.free_references()]
    if not left or not right:
        return None
    fitting = [fit(m, left, right) for mapping in ready for m in (mapping, mapping.swapped())]
    best = max(fitting, key=lambda found: found.explained, default=None)
    return best.mapping if best is not None and best.explained else None


def named(mapping: Mapping, candidate: Sequence[Node], reference: Sequence[Node]) -> Mapping:
    """Gives a ready mapping that was asked for by name, as it fits, in its better direction.

    Raises:
        MappingError: It says nothing of the two runs.
    """
    fitting = [fit(m, candidate, reference) for m in (mapping, mapping.swapped())]
    best = max(fitting, key=lambda found: found.explained)
    if not best.explained:
        raise MappingError(f"{mapping.source}: none of its rules finds a partner in the two runs.")
    return best.mapping


def _explained(rule: Rule, candidates: set[str], references: set[str]) -> set[str]:
    """Gives the nodes of the candidate that a rule names and whose partners are there."""
    found: set[str] = set()
    if rule.ignores:
        return found
    many, one = (rule.candidate, rule.reference[0]) if len(rule.candidate) > 1 else (rule.reference, rule.candidate[0])
    wholes, parts = (references, candidates) if len(rule.candidate) > 1 else (candidates, references)
    compiled = pattern(one)
    for path in wholes:
        match = compiled.fullmatch(path)
        filled = [fill(part, match) for part in many] if match else []
        if filled and all(part in parts for part in filled) and filled != [path]:
            found.update(filled if len(rule.candidate) > 1 else [path])
    return found


def _modules(nodes: Sequence[Node]) -> set[str]:
    return {normalise(node.path) for node in nodes if node.kind is NodeKind.MODULE}


_HF_FUSED: Final = """\
version: 1
candidate: {framework: vllm}
reference: {framework: pytorch, model: transformers}
rules:
  - candidate: "{prefix}.self_attn.qkv_proj"
    reference: ["{prefix}.self_attn.q_proj", "{prefix}.self_attn.k_proj", "{prefix}.self_attn.v_proj"]
    combine: {concat: -1}
  - candidate: "{prefix}.mlp.gate_up_proj"
    reference: ["{prefix}.mlp.gate_proj", "{prefix}.mlp.up_proj"]
    combine: {concat: -1}
"""

_MEGATRON: Final = """\
version: 1
candidate: {framework: megatron}
reference: {framework: pytorch, model: transformers}
rules:
  - {candidate: embedding.word_embeddings, reference: model.embed_tokens}
  - {candidate: decoder, reference: model}
  - {candidate: "decoder.layers.{i}.input_layernorm", reference: "model.layers.{i}.input_layernorm"}
  - {candidate: "decoder.layers.{i}.self_attention", reference: "model.layers.{i}.self_attn"}
  - candidate: "decoder.layers.{i}.self_attention.linear_qkv"
    reference:
      - model.layers.{i}.self_attn.q_proj
      - model.layers.{i}.self_attn.k_proj
      - model.layers.{i}.self_attn.v_proj
    combine: {interleave: {dim: 0, groups: num_query_groups}}
  - {candidate: "decoder.layers.{i}.self_attention.q_layernorm", reference: "model.layers.{i}.self_attn.q_norm"}
  - {candidate: "decoder.layers.{i}.self_attention.k_layernorm", reference: "model.layers.{i}.self_attn.k_norm"}
  - {candidate: "decoder.layers.{i}.self_attention.linear_proj", reference: "model.layers.{i}.self_attn.o_proj"}
  - {candidate: "decoder.layers.{i}.pre_mlp_layernorm", reference: "model.layers.{i}.post_attention_layernorm"}
  - candidate: "decoder.layers.{i}.mlp.linear_fc1"
    reference: ["model.layers.{i}.mlp.gate_proj", "model.layers.{i}.mlp.up_proj"]
    combine: {concat: -1}
  - {candidate: "decoder.layers.{i}.mlp.linear_fc2", reference: "model.layers.{i}.mlp.down_proj"}
  - {candidate: decoder.final_layernorm, reference: model.norm}
  - {candidate: rotary_pos_emb, reference: model.rotary_emb}
  - {candidate: output_layer, reference: lm_head}
"""

_WRAPPERS: Final = """\
version: 1
rules:
  - {candidate: "_forward_module.{rest}", reference: "{rest}"}
  - {candidate: "model.base_model.model.{rest}", reference: "{rest}"}
  - {candidate: "base_model.model.{rest}", reference: "{rest}"}
"""

HF_VLLM: Final = ReadyMapping("hf-vllm", _HF_FUSED.replace("{prefix}", "model.layers.{i}"))
HF_MEGATRON: Final = ReadyMapping("hf-megatron", _MEGATRON)
WRAPPERS: Final = ReadyMapping("wrappers", _WRAPPERS)
