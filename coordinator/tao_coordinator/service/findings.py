"""What is wrong with a backend that answers, and how to mend it: for log, API and `tao doctor`."""

from dataclasses import dataclass

from tao_coordinator.adapters.engines import openai_models
from tao_coordinator.config import BackendConfig
from tao_coordinator.service.probe import Look

OVERRIDE_RATIO_MAX = 1.5
"""An override this much above what the engine reports is probably a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to mend."""

    code: str
    message: str
    """What is so, and what it costs."""
    fix: str
    """What to do, with the flag in it."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.message}; {self.fix}"


def findings_of(backend: BackendConfig, look: Look) -> list[Finding]:
    """Everything that one look shows, worst first."""
    found = [*_capacity(backend, look), *_host_tier(backend, look), *_ranks(backend, look)]
    reading = look.reading
    if reading.has_prefix_cache is False:
        found.append(
            Finding(
                code="no_prefix_cache",
                message="the engine runs without a prefix cache: no turn will ever find anything",
                fix="start it with prefix caching (vLLM: --enable-prefix-caching)",
            )
        )
    if look.source is not None and look.source.hint:
        found.append(
            Finding(
                code="poor_metrics",
                message=f"read from {look.source.path.partition('?')[0]}, which lacks hit counters",
                fix=f"start the engine with {look.source.hint}",
            )
        )
    if look.problem:
        found.append(
            Finding(code="no_model_list", message=look.problem, fix="check what serves this URL")
        )
    return found


def _capacity(backend: BackendConfig, look: Look) -> list[Finding]:
    told, reported = backend.capacity_tokens, look.reading.capacity_tokens
    override = f"--capacity {backend.backend_id}=TOKENS"
    if told is not None:
        if reported is not None and told > OVERRIDE_RATIO_MAX * reported:
            message = f"capacity is set to {told} tokens, but the engine reports {reported}"
            fix = f"drop --capacity for {backend.backend_id} unless you know better"
            return [Finding(code="capacity_override", message=message, fix=fix)]
        return []
    if reported is not None:
        return []
    if backend.gateway is not None and backend.metrics_url is None:
        message = "KV capacity unknown: a gateway's own page says nothing of one engine"
        fix = f"set metrics_url to the engine behind it, or {override}"
    elif look.kind == openai_models.KIND:
        message = "KV capacity unknown: no metrics page of a known engine (vLLM, SGLang, ...) found"
        fix = f"{override}, or set metrics_url (SGLang needs --enable-metrics)"
    else:
        message = f"KV capacity unknown: {look.kind} does not report it, or reports nonsense"
        fix = override
    return [Finding(code="capacity_unknown", message=message, fix=fix)]


def _host_tier(backend: BackendConfig, look: Look) -> list[Finding]:
    tokens = backend.host_tier_tokens
    pool = backend.capacity_tokens or look.reading.capacity_tokens
    if tokens is None or pool is None or tokens > pool * backend.capacity_scale:
        return []
    return [
        Finding(
            code="host_tier_small",
            message=f"a host tier of {tokens} tokens keeps nothing that the pool of {pool} does not"
            " hold: it changes no decision",
            fix="give the engine more host memory; where it moves blocks instead of copying them"
            " (TensorRT-LLM), tell pool and host together",
        )
    ]


def _ranks(backend: BackendConfig, look: Look) -> list[Finding]:
    num_ranks, rank = look.reading.num_ranks, backend.data_parallel_rank
    if rank is None and num_ranks > 1:
        return [
            Finding(
                code="several_ranks",
                message=f"{num_ranks} data-parallel ranks with a cache each behind one URL: turns"
                " meet their cache by luck",
                fix=f"--data-parallel-ranks {backend.backend_id}={num_ranks} makes each a backend",
            )
        ]
    reading = look.reading
    if rank is not None and look.source is not None and reading.running is None:
        return [
            Finding(
                code="no_such_rank",
                message=f"the metrics page knows no data-parallel rank {rank}",
                fix="check the number of ranks that the engine was started with",
            )
        ]
    return []
