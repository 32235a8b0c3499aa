"""The modelled backend over real HTTP: shapes, errors, metrics, records, disconnects."""

import concurrent.futures
import json
import math
import socket
import time
from collections.abc import Callable, Generator
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sim_backend_server import running_sim_backend, sim_settings

from tao_coordinator.service.sim_backend.scripts import parse_scripts
from tao_coordinator.service.sim_backend.server import SimBackendServer

SCALE = 20.0


@pytest.fixture(scope="module")
def backend() -> Generator[SimBackendServer]:
    long_turn = {"text": "Thinking.", "output_tokens": 20_000}
    settings = sim_settings(
        capacity_tokens=40_000,
        context_tokens_max=30_000,
        time_scale=SCALE,
        body_bytes_max=400_000,
        scripts=parse_scripts({"scripts": {"long": {"turns": [long_turn]}}}),
    )
    with running_sim_backend(settings) as server:
        yield server


@pytest.fixture
def http(backend: SimBackendServer) -> Generator[httpx2.Client]:
    with httpx2.Client(base_url=backend.url, timeout=20, trust_env=False) as client:
        yield client


def chat(content: str, **more: object) -> dict[str, object]:
    return {"model": "sim/test", "messages": [{"role": "user", "content": content}], **more}


def metrics_of(http: httpx2.Client) -> dict[str, float]:
    page = http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            assert sample.labels["model_name"] == "sim/test"
            assert sample.labels["engine"] == "0"
            reason = sample.labels.get("finished_reason")
            samples[sample.name + (f"/{reason}" if reason else "")] = sample.value
    return samples


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "did not become true"
        time.sleep(0.02)


def events_of(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def choice_of(event: dict[str, Any]) -> dict[str, Any]:
    (choice,) = event["choices"]
    return choice


def test_models_health_and_version(http: httpx2.Client) -> None:
    (model,) = http.get("/v1/models").json()["data"]
    assert model["id"] == "sim/test"
    assert model["max_model_len"] == 30_000
    assert http.get("/health").status_code == 200
    assert http.get("/version").json()["version"].startswith("tao-sim-")


def test_completion_has_the_asked_length_and_its_usage(http: httpx2.Client) -> None:
    answer = http.post("/v1/chat/completions", json=chat("x" * 4000, max_tokens=25)).json()
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["role"] == "assistant"
    assert 24 * 4 <= len(choice["message"]["content"]) <= 26 * 4
    usage = answer["usage"]
    assert usage["prompt_tokens"] == 1001  # 4,000 characters and 5 of the rendering
    assert usage["completion_tokens"] == 25
    assert usage["total_tokens"] == 1026


def test_length_without_limit_is_drawn_from_the_prompt(http: httpx2.Client) -> None:
    answers = [http.post("/v1/chat/completions", json=chat(f"q{i % 6}")).json() for i in range(12)]
    lengths = [answer["usage"]["completion_tokens"] for answer in answers]
    assert lengths[:6] == lengths[6:]
    assert len(set(lengths)) > 3
    assert all(8 <= length <= 2048 for length in lengths)
    assert {answer["choices"][0]["finish_reason"] for answer in answers} == {"stop"}


def test_time_to_first_token_follows_the_step_law(http: httpx2.Client) -> None:
    http.post(
        "/v1/chat/completions",
        json=chat("unique " * 11_000, max_tokens=3),
        headers={"x-request-id": "timing"},
    )
    (record,) = [r for r in http.get("/sim/requests").json() if r["request_id"] == "timing"]
    tokens = record["prompt_tokens"]
    engine_ms = 0.0
    for start in range(0, tokens, 8192):
        new = min(8192, tokens - start)
        engine_ms += 1.6 * (0.04883 * new + 1.542e-06 * new * (start + new / 2))
    ttft_s = record["first_token_at"] - record["received_at"]
    assert ttft_s * SCALE == pytest.approx(engine_ms / 1000, rel=1e-3)
    decode_s = record["finished_at"] - record["first_token_at"]
    two_steps_ms = 2 * (13.566 + 0.0286 + 4.243e-05 * tokens)
    assert decode_s * SCALE == pytest.approx(two_steps_ms / 1000, rel=0.01)


def test_stream_arrives_in_pieces_and_adds_up(http: httpx2.Client) -> None:
    body = chat("tell me", max_tokens=200)
    whole = http.post("/v1/chat/completions", json=body).json()
    answer = http.post(
        "/v1/chat/completions",
        json={**body, "stream": True, "stream_options": {"include_usage": True}},
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == {
        "prompt_tokens": whole["usage"]["prompt_tokens"],
        "completion_tokens": 200,
        "total_tokens": whole["usage"]["prompt_tokens"] + 200,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    choices = [choice_of(event) for event in events[:-1]]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1]["finish_reason"] == "length"
    assert len(choices) > 4
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    assert text == whole["choices"][0]["message"]["content"]


def test_stream_without_include_usage_has_none(http: httpx2.Client) -> None:
    body = chat("tell me", max_tokens=5, stream=True)
    events = events_of(http.post("/v1/chat/completions", json=body).text)
    assert all("usage" not in event for event in events)


def test_plain_completion_with_and_without_stream(http: httpx2.Client) -> None:
    body = {"model": "sim/test", "prompt": "def main():", "max_tokens": 20}
    answer = http.post("/v1/completions", json=body).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["finish_reason"] == "length"
    events = events_of(http.post("/v1/completions", json={**body, "stream": True}).text)
    text = "".join(choice_of(event)["text"] for event in events)
    assert text == answer["choices"][0]["text"]
    one = http.post("/v1/completions", json={**body, "prompt": ["def main():"]}).json()
    assert one["choices"][0]["text"] == text


def test_metrics_follow_the_requests(http: httpx2.Client) -> None:
    before = metrics_of(http)
    content = "metrics " * 500
    for _ in range(2):
        http.post("/v1/chat/completions", json=chat(content, max_tokens=10))
    after = metrics_of(http)

    def gained(name: str) -> float:
        return after[f"vllm:{name}_total"] - before[f"vllm:{name}_total"]

    assert gained("prefix_cache_queries") == 2 * 1001
    assert gained("prefix_cache_hits") == 62 * 16  # of 1,001 tokens the second time
    assert gained("prompt_tokens") == 2 * 1001
    assert gained("generation_tokens") == 20
    assert gained("num_preemptions") == 0
    name = "vllm:request_success_total/length"
    assert after[name] - before[name] == 2
    assert after["vllm:num_requests_running"] == 0
    assert after["vllm:num_requests_waiting"] == 0
    assert after["vllm:kv_cache_usage_perc"] == 0
    assert after["vllm:cache_config_info"] == 1
    page = http.get("/metrics").text
    config = next(line for line in page.splitlines() if "config_info{" in line)
    for label in (
        'block_size="16"',
        'num_gpu_blocks="2500"',
        'kv_cache_size_tokens="40000"',
        'enable_prefix_caching="True"',
    ):
        assert label in config


def test_records_name_session_and_request_and_can_be_read_on(http: httpx2.Client) -> None:
    last = max((record["sequence"] for record in http.get("/sim/requests").json()), default=0)
    assert http.get("/sim/requests", params={"since": last}).json() == []
    start = time.time()
    for index in range(3):
        http.post(
            "/v1/chat/completions",
            json=chat("record me", max_tokens=4),
            headers={"X-Session-ID": "s-1", "x-request-id": f"r-{index}"},
        )
    records = http.get("/sim/requests", params={"since": last + 1}).json()
    assert [record["request_id"] for record in records] == ["r-1", "r-2"]
    assert [record["sequence"] for record in records] == [last + 2, last + 3]
    for record in records:
        assert record["session_id"] == "s-1"
        assert record["outcome"] == "completed"
        assert record["output_tokens"] == 4
        assert start - 1 < record["received_at"] <= record["first_token_at"]
        assert record["first_token_at"] < record["finished_at"] < time.time() + 1


def test_client_that_leaves_a_stream_is_taken_out_of_the_engine(http: httpx2.Client) -> None:
    with http.stream(
        "POST",
        "/v1/chat/completions",
        json=chat("[[script long]]", stream=True),
        headers={"x-request-id": "leaver"},
    ) as answer:
        lines = answer.iter_lines()  # dropping it would close the connection
        assert '"role":"assistant"' in next(lines)
        running = metrics_of(http)
        assert running["vllm:num_requests_running"] == 1
        assert running["vllm:kv_cache_usage_perc"] > 0
    eventually(lambda: metrics_of(http)["vllm:num_requests_running"] == 0)
    final = metrics_of(http)
    assert final["vllm:kv_cache_usage_perc"] == 0
    assert final["vllm:request_success_total/abort"] >= 1
    (record,) = [r for r in http.get("/sim/requests").json() if r["request_id"] == "leaver"]
    assert record["outcome"] == "cancelled"
    assert 0 < record["output_tokens"] < 20_000
    assert record["first_token_at"] is not None


def test_client_that_leaves_while_it_waits_for_a_whole_answer(http: httpx2.Client) -> None:
    with pytest.raises(httpx2.TimeoutException):
        http.post(
            "/v1/chat/completions",
            json=chat("[[script long]]"),
            headers={"x-request-id": "impatient"},
            timeout=0.3,
        )
    eventually(lambda: metrics_of(http)["vllm:num_requests_running"] == 0)
    (record,) = [r for r in http.get("/sim/requests").json() if r["request_id"] == "impatient"]
    assert record["outcome"] == "cancelled"


def error_of(answer: httpx2.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert "\n" not in error["message"]
    return error


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "no JSON"),
        (b"[]", "JSON object"),
        (b"{}", "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": ["x"]}', "messages[0]"),
        (b'{"messages": [{"content": "x"}]}', "messages[0].role"),
        (b'{"messages": [{"role": "user", "content": 5}]}', "messages[0].content"),
        (b'{"messages": [{"role": "user", "content": [5]}]}', "messages[0].content[0]"),
        (b'{"messages": [{"role": "user", "tool_calls": 5}]}', "messages[0].tool_calls"),
        (b'{"messages": [{"role": "user", "tool_calls": [5]}]}', "tool_calls[0].function"),
        (b'{"messages": [{"role": "a", "tool_calls": [{"function": {}}]}]}', "function.name"),
        (b'{"messages": [{"role": "user"}], "tools": "bash"}', "tools"),
        (b'{"messages": [{"role": "user"}], "max_tokens": 0}', "max_tokens"),
        (b'{"messages": [{"role": "user"}], "max_completion_tokens": 1.5}', "max_completion_tok"),
        (b'{"messages": [{"role": "user"}], "stream": "yes"}', "stream"),
        (b'{"messages": [{"role": "user"}], "stream_options": 1}', "stream_options"),
        (b'{"messages": [{"role": "user"}], "model": 1}', "model"),
        (b'{"messages": [{"role": "user"}], "n": 2}', "n: only 1"),
    ],
)
def test_bad_chat_body_is_answered_400(http: httpx2.Client, body: bytes, message: str) -> None:
    error = error_of(http.post("/v1/chat/completions", content=body), 400)
    assert message in str(error["message"])
    assert error["type"] == "BadRequestError"


@pytest.mark.parametrize("prompt", [None, "", 5, [], ["a", "b"], [1, 2]])
def test_bad_prompt_is_answered_400(http: httpx2.Client, prompt: object) -> None:
    error = error_of(http.post("/v1/completions", json={"prompt": prompt}), 400)
    assert "prompt" in str(error["message"])


def test_unknown_model_is_answered_404(http: httpx2.Client) -> None:
    answer = http.post("/v1/chat/completions", json={**chat("x"), "model": "gpt-9"})
    assert error_of(answer, 404)["message"] == "The model `gpt-9` does not exist."


def test_unknown_path_and_method_are_errors_in_the_same_shape(http: httpx2.Client) -> None:
    error_of(http.get("/v1/nothing"), 404)
    error_of(http.get("/v1/chat/completions"), 405)
    error_of(http.get("/sim/requests", params={"since": "x"}), 400)


def test_prompt_beyond_the_context_is_answered_400(http: httpx2.Client) -> None:
    error = error_of(http.post("/v1/chat/completions", json=chat("x" * 130_000)), 400)
    assert "maximum context length is 30000 tokens" in str(error["message"])
    answer = http.post("/v1/chat/completions", json=chat("x" * 4000, max_tokens=29_500))
    assert "maximum context length" in str(error_of(answer, 400)["message"])


def test_body_beyond_the_limit_is_answered_413(http: httpx2.Client) -> None:
    error_of(http.post("/v1/chat/completions", json=chat("x" * 500_000)), 413)

    def unannounced() -> Generator[bytes]:
        for _ in range(60):
            yield b"x" * 10_000

    error_of(http.post("/v1/chat/completions", content=unannounced()), 413)


def test_replies_share_the_engine_and_slow_each_other_down(http: httpx2.Client) -> None:
    # Two prompts of more than half the pool cannot run together: the second one waits.
    def ask(name: str) -> httpx2.Response:
        return http.post(
            "/v1/chat/completions",
            json=chat(name * 90_000, max_tokens=400),
            headers={"x-request-id": f"big-{name}"},
        )

    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = list(pool.map(ask, "ab"))
    assert [answer.status_code for answer in answers] == [200, 200]
    records = sorted(
        (r for r in http.get("/sim/requests").json() if r["request_id"].startswith("big-")),
        key=lambda record: float(record["finished_at"]),
    )
    first, second = records
    assert second["first_token_at"] > first["finished_at"]
    assert math.isclose(first["prompt_tokens"], 22_500, rel_tol=0.001)


def test_client_that_leaves_during_its_upload_does_no_harm(backend: SimBackendServer) -> None:
    address = ("127.0.0.1", int(backend.url.rpartition(":")[2]))
    with socket.create_connection(address) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        )
    assert httpx2.get(f"{backend.url}/health", trust_env=False).status_code == 200


def test_request_that_fits_the_context_but_not_whole_blocks_is_answered_400() -> None:
    # 1,000 tokens are 62 blocks of 16 and a rest that holds no block.
    with running_sim_backend(sim_settings(capacity_tokens=1000)) as server:
        answer = httpx2.post(
            f"{server.url}/v1/chat/completions",
            json=chat("x" * 3900, max_tokens=10),
            trust_env=False,
        )
        assert answer.status_code == 200
        answer = httpx2.post(
            f"{server.url}/v1/completions",
            json={"prompt": "x" * 3984, "max_tokens": 1},
            trust_env=False,
        )
    assert "do not fit into a KV pool of 992 tokens" in str(error_of(answer, 400)["message"])


def test_broken_engine_answers_503_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_sim_backend(sim_settings()) as server:

        def broken(now_s: float) -> None:
            raise AssertionError("broken on purpose")

        monkeypatch.setattr(server.driver.model, "advance", broken)
        for _ in range(2):
            answer = httpx2.post(
                f"{server.url}/v1/chat/completions", json=chat("x"), trust_env=False
            )
            error_of(answer, 503)
        assert httpx2.get(f"{server.url}/health", trust_env=False).status_code == 503
        assert httpx2.get(f"{server.url}/metrics", trust_env=False).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_leaves_at_once_leaves_nothing_behind(
    backend: SimBackendServer, http: httpx2.Client, stream: bool
) -> None:
    address = ("127.0.0.1", int(backend.url.rpartition(":")[2]))
    body = json.dumps(chat("[[script long]]", stream=stream)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(5):
        with socket.create_connection(address) as connection:
            connection.sendall(head.encode() + body)
    http.post("/v1/chat/completions", json=chat("after them", max_tokens=2))

    def is_idle() -> bool:
        metrics = metrics_of(http)
        return metrics["vllm:num_requests_running"] + metrics["vllm:num_requests_waiting"] == 0

    eventually(is_idle)  # well before the 13 s that such a reply takes
