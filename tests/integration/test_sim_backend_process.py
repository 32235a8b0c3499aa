"""`tao sim-backend` as a process: its first line, its flags, its end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from tao_coordinator.cli import main; sys.exit(main(sys.argv[1:]))",
    "sim-backend",
]


@contextmanager
def process(*flags: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [*COMMAND, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    ) as child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline()
        finally:
            child.kill()


def test_first_line_says_where_and_what_it_serves() -> None:
    with process("--capacity-tokens", "50000", "--time-scale", "8") as (_, line):
        match = re.fullmatch(
            r"sim-backend listening on (http://127\.0\.0\.1:\d+) model=sim/qwen3-32b-bf16-tp2 "
            r"pool=50000 tokens time-scale=8\n",
            line,
        )
        assert match is not None
        (model,) = httpx2.get(f"{match[1]}/v1/models", trust_env=False).json()["data"]
        assert model["max_model_len"] == 50_000


def test_engine_of_ones_own_is_served_under_its_name(tmp_path: Path) -> None:
    engine = tmp_path / "mine.json"
    engine.write_text('{"base": "glm-4.7-fp8-tp8ep8", "kv_capacity_tokens": 40000}')
    with process("--engine", str(engine)) as (_, line):
        match = re.search(r"(http://\S+) model=sim/mine pool=40000 tokens", line)
        assert match is not None, line
        metrics = httpx2.get(f"{match[1]}/metrics", trust_env=False)
        assert metrics.status_code == 200
        assert 'model_name="sim/mine"' in metrics.text


def test_first_line_can_be_json_and_flags_are_heeded(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"scripts": {"s": {"turns": [{"text": "Hello from s."}]}}}))
    flags = [
        *("--engine", "glm-4.7-fp8-tp8ep8", "--model", "glm", "--block-size", "64", "--json"),
        *("--script", str(script), "--chars-per-token", "0.05", "--context-tokens-max", "90000"),
    ]
    with process(*flags) as (_, line):
        facts = json.loads(line)
        url = facts.pop("url")
        assert facts == {
            "model": "glm",
            "engine": "glm-4.7-fp8-tp8ep8",
            "capacity_tokens": 600_000,
            "time_scale": 1.0,
        }
        messages = [{"role": "user", "content": "x" * 80 + "[[script s]]"}]
        answer = httpx2.post(
            f"{url}/v1/chat/completions",
            json={"model": "glm", "messages": messages},
            trust_env=False,
            timeout=30,
        ).json()
        assert answer["choices"][0]["message"]["content"] == "Hello from s."
        assert answer["usage"]["prompt_tokens"] == (92 + 5) * 20
        assert 'block_size="64"' in httpx2.get(f"{url}/metrics", trust_env=False).text


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_cuts_open_streams_and_ends_the_process(number: int, status: int) -> None:
    with process() as (child, line):
        url = line.split()[3]
        body = {
            "messages": [{"role": "user", "content": "hello " * 20_000}],
            "stream": True,
        }
        with httpx2.stream(
            "POST", f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=30
        ) as answer:
            assert answer.status_code == 200
            start = time.monotonic()
            child.send_signal(number)
            text = answer.read().decode()
            assert time.monotonic() - start < 10
        assert "takes no more requests" in text
        assert "[DONE]" not in text
        assert child.wait(10) == status
        assert child.stderr is not None
        assert child.stderr.read() == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--engine", "h200"], "--engine h200: neither a file nor one of "),
        (["--capacity-tokens", "9"], "--capacity-tokens 9: must hold at least one block"),
        (["--block-size", "0"], "--block-size 0: must be at least 1"),
        (["--chars-per-token", "0"], "--chars-per-token: must be above 0"),
        (["--chars-per-token", "x"], "--chars-per-token x: must be a number"),
        (["--time-scale", "0"], "--time-scale 0.0: must be above 0"),
        (["--time-scale", "nan"], "--time-scale nan: must be above 0"),
        (["--port", "70000"], "--port 70000: must be 0 to 65535"),
        (["--model", " "], "--model: must not be blank"),
        (["--context-tokens-max", "400000"], "--context-tokens-max 400000: must be 2 or more"),
        (["--script", "/does/not/exist.json"], "cannot read script file /does/not/exist.json"),
    ],
)
def test_mistake_is_one_line_and_exit_status_2(flags: list[str], message: str) -> None:
    done = subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_taken_port_is_one_line_and_exit_status_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--port", str(port)], capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"tao: cannot listen on 127.0.0.1:{port}: Address already in use"
    ]
