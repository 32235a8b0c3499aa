"""One mini-SWE-agent session of a fleet: the real agent, dated turn by turn.

Imported after `mini_swe_agent_fleet` has set the environment, which minisweagent and litellm read
when they are imported.
"""

# minisweagent declares bare `dict`s, and litellm is typed in parts only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import functools
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import litellm
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

from tao_client import semconv

Record = dict[str, object]


class StoppedError(KeyboardInterrupt):
    """The fleet is being stopped; of a kind that mini-SWE-agent does not try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What all sessions of a fleet have in common."""

    model: str
    """Name of the model as the backends serve it."""
    base_url: str
    """OpenAI API root, `/v1` included, for calls that are not placed."""
    api_key: str
    call_timeout_s: float
    """Limit of one model call."""
    command_timeout_s: int
    """Limit of one command."""
    turn_limit: int
    """Model calls after which a session gives up. 0: none."""
    folder: Path
    """Where each session gets a folder of its own."""


@functools.cache
def _mini_config() -> dict[str, Any]:
    """mini-SWE-agent's own default configuration: prompts, environment variables."""
    return cast("dict[str, Any]", get_config_from_spec("mini.yaml"))


def warm_up(settings: FleetSettings) -> None:
    """Have litellm load what it loads at its first call, without calling anybody."""
    _mini_config()
    litellm.suppress_debug_info = True
    litellm.completion(
        model=f"openai/{settings.model}",
        messages=[{"role": "user", "content": "hello"}],
        api_key=settings.api_key,
        mock_response="hello",
    )


def run_session(
    session_id: str,
    task: str,
    settings: FleetSettings,
    write: Callable[[Record], None],
    stopping: threading.Event,
) -> None:
    """Run one agent to its end and write a record per turn and one for the session."""
    folder = tempfile.mkdtemp(dir=settings.folder)
    config = _mini_config()
    model = FleetModel(session_id, settings, write, stopping)
    environment = FleetEnvironment(
        stopping,
        cwd=folder,
        timeout=settings.command_timeout_s,
        env={**config["environment"]["env"], "HOME": folder},
    )
    agent = FleetAgent(
        model,
        environment,
        system_template=config["agent"]["system_template"],
        instance_template=config["agent"]["instance_template"],
        step_limit=settings.turn_limit,
        cost_limit=0.0,
    )
    agent.instance_id = session_id
    started_at = time.time()
    exit_status = ""
    try:
        result = cast("Record", agent.run(task))
        exit_status = str(result.get("exit_status", ""))
    except StoppedError:
        exit_status = "Stopped"
    except Exception as error:  # noqa: BLE001 - the session has failed, and its record says why
        exit_status = f"{type(error).__name__}: {error}"[:500]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        write(
            {
                "kind": "session",
                "session_id": session_id,
                "started_at": started_at,
                "ended_at": time.time(),
                "turns": agent.n_calls,
                "exit_status": exit_status,
            }
        )


class FleetAgent(DefaultAgent):
    """The default agent, with the name that `instrument` takes for its session."""

    instance_id: str = ""


class FleetEnvironment(LocalEnvironment):
    """The local environment, closed once the fleet is being stopped."""

    def __init__(self, stopping: threading.Event, **settings: Any) -> None:
        super().__init__(**settings)
        self._stopping = stopping

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        """Execute a command."""
        if self._stopping.is_set():
            raise StoppedError
        return super().execute(action, cwd, timeout=timeout)


class FleetModel(LitellmModel):
    """The litellm model, dating each call."""

    def __init__(
        self,
        session_id: str,
        settings: FleetSettings,
        write: Callable[[Record], None],
        stopping: threading.Event,
    ) -> None:
        self._session_id = session_id
        self._write = write
        self._stopping = stopping
        self._sent_at: float | None = None
        self._address = settings.base_url
        self._usage: Any = None
        super().__init__(
            model_name=f"openai/{settings.model}",
            model_kwargs={
                "api_base": settings.base_url,
                "api_key": settings.api_key,
                "timeout": settings.call_timeout_s,
                # Without a connection to a coordinator it still tells sessions apart.
                "extra_headers": {semconv.HEADER_SESSION: session_id},
            },
        )

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        """One turn, all its attempts included."""
        self._sent_at, self._usage = None, None
        asked_at = time.time()
        error: str | None = None
        try:
            return super().query(messages, **kwargs)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._write_turn(asked_at, error)

    def _query(self, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        # Inside of the tap of `mini_swe_agent`: the hold is over, the address is the real one.
        if self._stopping.is_set():
            raise StoppedError
        if self._sent_at is None:
            self._sent_at = time.time()
        self._address = str(kwargs.get("api_base") or self.config.model_kwargs["api_base"])
        response: Any = super()._query(messages, **kwargs)
        self._usage = getattr(response, "usage", None)
        return response

    def _calculate_cost(self, response: object) -> dict[str, float]:
        # Looking for a price that no own backend has takes longer than everything else here.
        return {"cost": 0.0}

    def _write_turn(self, asked_at: float, error: str | None) -> None:
        answered_at = time.time()
        details: Any = getattr(self._usage, "prompt_tokens_details", None)
        record: Record = {
            "kind": "turn",
            "session_id": self._session_id,
            "asked_at": asked_at,
            "answered_at": answered_at,
            "input_tokens": getattr(self._usage, "prompt_tokens", None),
            "cached_tokens": getattr(details, "cached_tokens", None),
            "output_tokens": getattr(self._usage, "completion_tokens", None),
            "hold_s": (self._sent_at or answered_at) - asked_at,
            "backend": self._address.removesuffix("/").removesuffix("/v1"),
        }
        if self._usage is None:
            record["error"] = error
        self._write(record)
