"""Hundreds of started sessions wait: plans are made in another process and can be looked up."""

from pathlib import Path

from coordinator_process import (
    POOL_TOKENS,
    CoordinatorProcess,
    coordinator,
    page,
    stub_backends,
    wait_until,
)
from prometheus_client.parser import text_string_to_metric_families

NUM_SESSIONS = 300
"""On two backends more pairs than are placed within a step."""
RELEASE = {"outcome": "completed", "input_tokens": 10_000, "cached_tokens": 0, "output_tokens": 50}


def release(service: CoordinatorProcess, lease_id: str) -> None:
    assert service.call("POST", f"/tao/v1/leases/{lease_id}/release", RELEASE).status == 204


def num_plans(service: CoordinatorProcess, path: str) -> float:
    text = service.call("GET", "/metrics").body.decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "tao_plan_total" and sample.labels["path"] == path
    )


def crowd(service: CoordinatorProcess) -> tuple[list[int], list[str]]:
    """All sessions come back at once; returns the sessions granted, the requests held."""
    running: list[int] = []
    held: list[str] = []
    for n in range(NUM_SESSIONS):
        reply = service.ask(f"again-{n}", f"s{n}")
        if reply.status == 200:
            running.append(n)
        else:
            assert reply.status == 202
            held.append(f"again-{n}")
    return running, held


def test_large_plan_is_made_beside_the_loop_and_can_be_looked_up(tmp_path: Path) -> None:
    with stub_backends(2, page("100000000")) as stubs:
        flags = [f"--backend={name}={stub.url}" for name, stub in zip("ab", stubs, strict=True)]
        with coordinator(tmp_path / "log", *flags) as service:
            for n in range(NUM_SESSIONS):
                release(service, service.ask(f"first-{n}", f"s{n}").json()["lease_id"])
            # The engines come back with small, empty pools: nobody is resident any more.
            for stub in stubs:
                stub.metrics_page = page()
            wait_until(
                lambda: all(
                    b["capacity_tokens"] == POOL_TOKENS for b in service.state()["backends"]
                )
            )
            running, held = crowd(service)
            assert len(held) > NUM_SESSIONS - 10
            wait_until(lambda: num_plans(service, "aside") >= 1)

            before = num_plans(service, "loop")
            for n in running:
                service.call("POST", f"/tao/v1/sessions/s{n}/end")
                release(service, service.ask(f"again-{n}", f"s{n}").json()["lease_id"])
            wait_until(lambda: service.num_held() < len(held))
            granted = next(
                reply.json()
                for reply in (service.ask(r, f"s{r.removeprefix('again-')}") for r in held)
                if reply.status == 200
            )
            assert granted["receipt"]["reason"] == "planned"
            plan_id = granted["receipt"]["plan_id"]
            plan = service.call("GET", f"/tao/v1/plans/{plan_id}").json()
            assert (plan["path"], plan["plan_id"]) == ("aside", plan_id)
            assert plan["outcome"] in {"applied", "shortened"}
            assert plan["asynchrony"]["age_s"] > 0
            assert plan["asynchrony"]["loss_max_tokens"] >= 0
            assert plan["quality"]["solve_s"] > 0
            chosen = [c for c in plan["candidates"] if c["why"] == "chosen"]
            assert {c["backend_id"] for c in chosen} <= {"a", "b"}
            assert len(plan["candidates"]) > len(chosen) > 0
            assert num_plans(service, "loop") == before
            waits = {h["because"] for h in service.state()["held"]}
            assert waits <= {"no_room", "outvalued", "cut", ""}
            assert service.terminate() < 10.0


def test_plan_that_is_unknown_is_a_clear_error(tmp_path: Path) -> None:
    with (
        stub_backends(1) as stubs,
        coordinator(tmp_path / "log", f"--backend=a={stubs[0].url}") as service,
    ):
        for text in ("1", "0", "-1", "x", "9" * 400, "%F0%9D%9F%99"):
            reply = service.call("GET", f"/tao/v1/plans/{text}")
            assert reply.status == 404
            assert reply.json()["error"]["type"] == "unknown_plan"
