"""`tao bench events`, small: it measures what it says and adds up."""

import json

import pytest

from tao_coordinator.bench import event_load
from tao_coordinator.bench.events import Settings, decode, run
from tao_coordinator.cli import main


def test_decode_reads_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tao_coordinator.bench.events._DECODE_RECORDS", 200)
    figures = decode(1)
    assert [(f.encoding, f.num_records) for f in figures] == [
        ("protobuf", 1),
        ("json", 1),
        ("protobuf", 100),
        ("json", 100),
    ]
    assert all(figure.events_per_s > 0 for figure in figures)


def test_requests_of_a_connection_name_each_call_once() -> None:
    requests = event_load._Requests(3, 1, "x", 7)
    bodies = [requests.next().partition(b"\r\n\r\n")[2] for _ in range(4)]
    parsed = [event_load.ExportLogsServiceRequest.FromString(body) for body in bodies]
    records = [request.resource_logs[0].scope_logs[0].log_records[0] for request in parsed]
    told = [
        (record.event_name, {a.key: a.value.string_value for a in record.attributes})
        for record in records
    ]
    assert [name for name, _ in told] == ["tao.tool.start", "tao.tool.end"] * 2
    calls = [attributes["gen_ai.tool.call.id"] for _, attributes in told]
    assert calls[0] == calls[1] != calls[2] == calls[3]
    assert len({attributes["log.record.uid"] for _, attributes in told}) == 4


def test_whole_benchmark_with_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tao_coordinator.bench.events._DECODE_RECORDS", 200)
    settings = Settings(num_runs=1, seconds=0.2, num_sessions=5, num_connections=2, rate=50.0)
    said: list[str] = []
    result = run(settings, said.append)
    assert [load.name for load in result.loads] == ["single", "batched", "paced"]
    assert all(load.requests_per_s > 0 for load in result.loads)
    assert result.loads[2].lease is not None
    assert said
    json.dumps(result.to_json())


@pytest.mark.parametrize("wrong", ["--runs=0", "--seconds=0", "--sessions=0", "--connections=100"])
def test_nonsense_is_one_line(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "events", wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1
