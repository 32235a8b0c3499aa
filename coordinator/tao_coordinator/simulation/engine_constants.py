"""Timing and capacity of the modelled engines: the step law and the named presets.

One preset describes one tensor-parallel group of H100s that serves one model. The constants are
least squares over the kernel database of AIConfigurator 0.12.0 (system h100_sxm, backend vLLM
0.24.0), so they are kernel times and optimistic: an end-to-end measurement of a Qwen3-30B-A3B class
model reached about 0.6 of the predicted prefill rate, hence `prefill_derate` = 1.6 on everything
that prefills.

Reloading from host memory is bound by the GPUs' PCIe 5.0 x16 links: `LINK_BYTES_PER_S` one way with
blocks of 0.5-2 MB (vLLM's own measurement on H100: 83.4 GB/s both ways, about 50 one way). Ranks
load side by side, each what it keeps itself: a share of the heads, or a whole latent cache (MLA).
"""

from dataclasses import dataclass
from typing import Final

MS_PER_S: Final = 1000.0
LINK_BYTES_PER_S: Final = 50e9
"""From host memory to one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConstants:
    """The step law of one engine and the size of its KV pool.

    A step that carries prefill lasts `max(decode part or prefill_base, derate * per_token * new) +
    per_context_token * context + derate * per_attention * attention`; a pure decode step lasts
    `decode_base + per_sequence * sequences + per_context_token * context`.
    """

    name: str
    """What reports and the served model name call it; of a preset, `--engine` too."""
    decode_base_ms: float
    """d0: a decode step of an empty batch (weights read once)."""
    decode_per_sequence_ms: float
    """dB: added by each decoding sequence."""
    decode_per_context_token_ms: float
    """dC: added by each token of context that the decoding sequences attend to."""
    prefill_base_ms: float
    """p0: the least that a step with prefill and nothing to decode lasts."""
    prefill_per_token_ms: float
    """p1: linear work per new prompt token."""
    prefill_per_attention_ms: float
    """p2: attention work per new token and token before it."""
    kv_capacity_tokens: int
    """KV pool in tokens."""
    context_tokens_max: int
    """The longest context that the model itself supports."""
    provenance: str
    """Where the numbers come from and how far to trust them."""
    kv_bytes_per_gpu_token: int
    """What one GPU of the group keeps of one token's KV."""
    prefill_derate: float = 1.6

    @property
    def reload_tokens_per_s(self) -> float:
        """KV tokens that come back from host memory in a second."""
        return LINK_BYTES_PER_S / self.kv_bytes_per_gpu_token

    def decode_s(self, num_steps: int, num_sequences: int, context_tokens: int) -> float:
        """Return how long `num_steps` pure decode steps of a constant batch last.

        Args:
            num_steps: Steps; each gives every sequence one token, so the context grows between
                them.
            num_sequences: Decoding sequences.
            context_tokens: Tokens that the first of the steps attends to, over the batch.

        Returns:
            Seconds from the start of the first step to the end of the last.
        """
        growth_tokens = num_sequences * num_steps * (num_steps - 1) // 2
        return (
            num_steps * (self.decode_base_ms + self.decode_per_sequence_ms * num_sequences)
            + self.decode_per_context_token_ms * (num_steps * context_tokens + growth_tokens)
        ) / MS_PER_S

    def prefill_step_s(
        self, num_sequences: int, context_tokens: int, new_tokens: int, attention: float
    ) -> float:
        """Return how long one step lasts that prefills, beside `num_sequences` decoding sequences.

        Args:
            num_sequences: Decoding sequences in the step.
            context_tokens: Tokens that they attend to.
            new_tokens: Prompt tokens computed in the step, over all its chunks.
            attention: Sum over the chunks of `chunk * (prefix + chunk / 2)`, in tokens squared.

        Returns:
            Seconds.
        """
        base_ms = (
            self.decode_base_ms + self.decode_per_sequence_ms * num_sequences
            if num_sequences
            else self.prefill_base_ms
        )
        linear_ms = self.prefill_derate * self.prefill_per_token_ms * new_tokens
        return (
            max(base_ms, linear_ms)
            + self.decode_per_context_token_ms * context_tokens
            + self.prefill_derate * self.prefill_per_attention_ms * attention
        ) / MS_PER_S


_PRESETS: Final = (
    EngineConstants(
        name="qwen3-32b-bf16-tp2",
        decode_base_ms=13.566,
        decode_per_sequence_ms=0.0286,
        decode_per_context_token_ms=4.243e-05,
        prefill_base_ms=6.866,
        prefill_per_token_ms=0.04883,
        prefill_per_attention_ms=1.542e-06,
        kv_capacity_tokens=307_000,
        context_tokens_max=131_072,
        kv_bytes_per_gpu_token=131_072,
        provenance=(
            "Qwen3-32B, bf16, 2 x H100. Fit over measured kernels; pool derived: 0.9 of the "
            "memory, 4 GiB per GPU of overhead, 262,144 bytes a token."
        ),
    ),
    EngineConstants(
        name="qwen3-32b-fp8w-tp2",
        decode_base_ms=19.451,
        decode_per_sequence_ms=0.1441,
        decode_per_context_token_ms=2.399e-05,
        prefill_base_ms=21.247,
        prefill_per_token_ms=0.03269,
        prefill_per_attention_ms=1.759e-06,
        kv_capacity_tokens=429_000,
        context_tokens_max=131_072,
        kv_bytes_per_gpu_token=131_072,
        provenance=(
            "Qwen3-32B, FP8 weights, 2 x H100. Fit over measured kernels; a decode base above "
            "bf16 is an oddity of the database, treat it with care. Pool derived."
        ),
    ),
    EngineConstants(
        name="deepseek-v3-fp8-tp8",
        decode_base_ms=16.334,
        decode_per_sequence_ms=0.2586,
        decode_per_context_token_ms=1.444e-05,
        prefill_base_ms=48.203,
        prefill_per_token_ms=0.04364,
        prefill_per_attention_ms=7.648e-07,
        kv_capacity_tokens=442_000,
        context_tokens_max=163_840,
        kv_bytes_per_gpu_token=70_272,
        provenance=(
            "DeepSeek-V3, FP8, 8 x H100: timing only. The 671 GB of weights do not fit 8 x 80 GB; "
            "the pool is the one derived for 16 x H100 (MLA, 70,272 bytes a token)."
        ),
    ),
    EngineConstants(
        name="deepseek-v4-flash-tp4",
        decode_base_ms=10.056,
        decode_per_sequence_ms=0.1758,
        decode_per_context_token_ms=2.377e-06,
        prefill_base_ms=34.731,
        prefill_per_token_ms=0.02905,
        prefill_per_attention_ms=4.612e-07,
        kv_capacity_tokens=4_400_000,
        context_tokens_max=1_048_576,
        kv_bytes_per_gpu_token=54_886,
        provenance=(
            "DeepSeek-V4-Flash, 4 x H100. Low confidence: fit in hybrid mode with the experts as "
            "FP8 blocks. Pool from a published preview figure; a later release reports 600,000 "
            "at 53.6 KiB a token on each rank, which is what a reload moves here."
        ),
    ),
    EngineConstants(
        name="glm-4.7-fp8-tp8ep8",
        decode_base_ms=20.594,
        decode_per_sequence_ms=0.2248,
        decode_per_context_token_ms=1.138e-05,
        prefill_base_ms=40.381,
        prefill_per_token_ms=0.03474,
        prefill_per_attention_ms=8.472e-07,
        kv_capacity_tokens=600_000,
        context_tokens_max=202_752,
        kv_bytes_per_gpu_token=47_104,
        provenance=(
            "GLM-4.7, FP8, 8 x H100 with expert parallelism. Low to medium confidence: a proxy "
            "with GLM shapes in the Qwen3 MoE class, no shared expert. Pool derived (bf16 KV)."
        ),
    ),
    EngineConstants(
        name="qwen3-coder-30b-a3b-fp8-tp2",
        decode_base_ms=6.0,
        decode_per_sequence_ms=0.35,
        decode_per_context_token_ms=7.97e-06,
        prefill_base_ms=8.0,
        prefill_per_token_ms=0.0106,
        prefill_per_attention_ms=6.4e-07,
        kv_capacity_tokens=2_237_040,
        context_tokens_max=262_144,
        kv_bytes_per_gpu_token=24_576,
        provenance=(
            "Qwen3-Coder-30B-A3B, FP8 with FP8 KV, 2 x H100: the anchor with published end-to-end "
            "numbers. Pool measured by vLLM 0.28; prefill solved from three published kernel "
            "points (8k new at 0, 16k and 41k), decode from 49,152 bytes a token and 28 ms at "
            "28 x 50k."
        ),
    ),
)

PRESETS: Final[dict[str, EngineConstants]] = {preset.name: preset for preset in _PRESETS}
"""Every engine that `--engine` knows, by name."""

DEFAULT_PRESET: Final = "qwen3-32b-bf16-tp2"
