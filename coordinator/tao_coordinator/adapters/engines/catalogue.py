"""Which engines are known, and how to tell from its pages which one a backend is."""

from typing import Final

from tao_coordinator.adapters.engines import dynamo, openai_models, sglang, tensorrt_llm, vllm
from tao_coordinator.adapters.engines.reading import Source

_SOURCES: Final = (
    # Dynamo first: its workers pass vLLM's names through.
    *dynamo.SOURCES,
    *vllm.SOURCES,
    *sglang.SOURCES,
    *tensorrt_llm.SOURCES,
)


def paths_of(kind: str) -> tuple[str, ...]:
    """Pages to look at, best first; none for a server without metrics.

    Args:
        kind: An engine kind, or `auto` for every page that any of them may have.
    """
    if kind == openai_models.KIND:
        return ()
    paths = [source.path for source in _SOURCES if kind in ("auto", source.kind)]
    return tuple(dict.fromkeys(paths))


def source_of(kind: str, path: str, text: str) -> Source | None:
    """Whose page this is; `None`: nobody's that is known.

    Args:
        kind: What the backend is said to be, or `auto`.
        path: Where the page was found.
        text: The page.
    """
    for source in _SOURCES:
        if source.path == path and kind in ("auto", source.kind) and source.recognises(text):
            return source
    return None
