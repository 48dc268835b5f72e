"""The layouts by name: how many processes, and the function that each of them calls."""

from __future__ import annotations

#: name -> (number of processes, "module:function"); the function gets a ``launching.Rank`` and the test's settings.
LAYOUTS: dict[str, tuple[int, str]] = {
    "single": (1, "tests.parallel.single:train_single"),
    "moe": (1, "tests.parallel.single:train_moe"),
    "data parallel": (2, "tests.parallel.data_parallel:train_data_parallel"),
    "data parallel of four": (4, "tests.parallel.data_parallel:train_data_parallel"),
    "tp2": (2, "tests.parallel.tensor_parallel:train_tensor_parallel"),
    "tp2 sp": (2, "tests.parallel.tensor_parallel:train_sequence_parallel"),
    "starved expert": (2, "tests.parallel.experts:train_experts"),
    "wrapped ways": (2, "tests.parallel.wrapped_ways:train_cases"),
    "sharded optimizer": (2, "tests.parallel.sharded_optimizer:train_sharded_optimizer"),
    "micro-steps": (2, "tests.parallel.data_parallel:train_by_micro_steps"),
    "micro-steps of four": (4, "tests.parallel.data_parallel:train_by_micro_steps"),
    "tp2 fsdp2": (4, "tests.parallel.tensor_parallel:train_sharded_tensor_parallel"),
    "megatron tp2": (2, "tests.parallel.megatron:train_megatron"),
    "megatron tp2 sp": (2, "tests.parallel.megatron:train_megatron_sequence"),
    "silent tp2": (2, "tests.parallel.megatron:train_silent_layers"),
    "cp2": (2, "tests.parallel.context_parallel:train_context_parallel"),
    "ep2": (2, "tests.parallel.expert_parallel:train_expert_parallel"),
    "diffusion": (1, "tests.parallel.diffusion:denoise"),
    "diffusion tp4": (4, "tests.parallel.diffusion:denoise"),
    "pp2": (2, "tests.parallel.pipeline:train_pipeline"),
    "vpp2": (2, "tests.parallel.pipeline:train_virtual_pipeline"),
    "tp2 pp2": (4, "tests.parallel.pipeline:train_pipeline_of_tensor_parallel"),
}
