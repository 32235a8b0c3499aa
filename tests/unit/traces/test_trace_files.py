"""Opening trace files and folders."""

import gzip
import json
from pathlib import Path

import pytest
from trace_rows import agent_rows, lines, mini_document

from tao_coordinator.traces import files
from tao_coordinator.traces.files import load
from tao_coordinator.traces.records import MalformedTrace


def test_plain_and_gzipped_files_are_the_same(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_text(lines(agent_rows()))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load(plain) == load(packed)


def test_folder_is_all_its_trace_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        document = {k: v for k, v in mini_document().items() if k != "instance_id"}
        (folder / f"{name}.traj.json").write_text(json.dumps(document))
    (tmp_path / "notes.txt").write_text("no trace")
    found = load(tmp_path)
    assert [session.session_id for session in found.sessions] == ["one", "two"]


def test_a_file_of_a_folder_that_is_no_trace_costs_only_itself(tmp_path: Path) -> None:
    """What mini-SWE-agent's benchmark runs leave: predictions, and a run that got no reply."""
    document = mini_document()
    (tmp_path / "good.traj.json").write_text(json.dumps(document))
    (tmp_path / "preds.json").write_text(json.dumps({"good": {"model_patch": "diff"}}))
    (tmp_path / "timeout.traj.json").write_text(json.dumps(document | {"messages": []}))
    (tmp_path / "begun.jsonl").write_text(json.dumps({"agent_trace": 1}) + "\n")
    (tmp_path / "later.jsonl").write_text(json.dumps({"agent_trace": 99}) + "\n")
    (tmp_path / "folder.json").mkdir()
    for number in range(30):
        (tmp_path / f"z{number}.json").write_text("{}")
    found = load(tmp_path)
    assert len(found.sessions) == 1
    assert found.skipped.count == 30 + 4
    told = "\n".join(found.skipped.messages)
    assert "preds.json: no known trace format" in told
    assert "timeout.traj.json: no dated reply" in told
    assert "later.jsonl: version 99" in told


def test_folder_in_which_nothing_is_a_trace_says_why(tmp_path: Path) -> None:
    (tmp_path / "preds.json").write_text(json.dumps({"good": {"model_patch": "diff"}}))
    with pytest.raises(MalformedTrace, match=r"preds\.json: no known trace format"):
        load(tmp_path)


def test_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedTrace, match="no file ending in"):
        load(tmp_path)


def test_damaged_gzip_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines(agent_rows()).encode())[:-12])
    with pytest.raises(MalformedTrace, match="damaged gzip"):
        load(path)


def test_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BYTES_MAX", 1 << 20)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * (2 << 20)))
    with pytest.raises(MalformedTrace, match="1 MiB"):
        load(path)


def test_bytes_that_are_no_text_are_read_around(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(agent_rows()).encode() + b"\xff\xfe\n")
    found = load(path)
    assert (found.num_turns, found.skipped.count) == (2, 1)
