"""The process-wide connection to the coordinator.

`connect` with the values of the present connection does nothing, with others it replaces it.
Everything else asks `active()` at each use, so that a session begun before `connect` is scheduled
from the moment there is a connection. After fork the child makes its own connection with the same
settings: threads, sockets and queues of the parent are left alone.
"""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from tao_client import _config, _events, semconv
from tao_client._channel import AsyncChannel, SyncChannel
from tao_client._config import Config, resolve_config
from tao_client._coordinators import Coordinators
from tao_client._courier import Courier
from tao_client._emission import Emitter
from tao_client._events import Event
from tao_client._lease import (
    NOT_LEADER,
    FlowHooks,
    HoldInfo,
    NoAnswer,
    Refusal,
    TurnFlow,
    TurnRequest,
    turn_flow,
)
from tao_client.errors import ConfigurationError

logger = logging.getLogger("tao_client")

FLUSH_LIMIT_S = 1.0
NOT_SCHEDULED = "calls are not scheduled: %s"
_SETUP_ERRORS = frozenset({"unauthorized", "incompatible_client", "malformed_request"})


class Connection:
    """The coordinators and everything that speaks to them. Starts nothing before it is used."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.coordinators = Coordinators(config.endpoints)
        self.channel = _opened_channel(config)
        self.async_channel = AsyncChannel(config)
        self.courier = Courier(self.channel, self.coordinators)
        self.emitter = self._make_emitter() if config.events else None
        _flush_when_worker_ends()
        self.chars_per_token = config.chars_per_token
        """What a session that has not been counted yet is estimated with."""
        self._has_warned_of_setup = False
        self._has_warned_of_hook = False

    def turn_flow(self, request: TurnRequest) -> TurnFlow:
        """The way of one turn to its lease, for a driver of `_channel`."""
        return turn_flow(
            request,
            FlowHooks(
                now_s=time.monotonic,
                present=self.coordinators.present,
                on_answer=self.coordinators.record_answer,
                on_no_answer=self._on_no_answer,
                on_refusal=self._on_refusal,
                on_hold=self._on_hold,
                abandon=self.courier.abandon,
            ),
        )

    def emit(self, event: Event) -> None:
        """Send one event, unless events are switched off."""
        if self.emitter is not None:
            self.emitter.emit(event)

    def close(self, time_limit_s: float = FLUSH_LIMIT_S) -> None:
        """Send what is queued, for `time_limit_s` in all, and stop the threads."""
        deadline_s = time.monotonic() + time_limit_s
        self.courier.close(time_limit_s)
        if self.emitter is not None:
            self.emitter.close(max(0.0, deadline_s - time.monotonic()))
        self.channel.close()

    def _make_emitter(self) -> Emitter | None:
        try:
            from tao_client._otlp import OtlpSink

            return Emitter(OtlpSink(self._post_events), lambda: self.coordinators.are_away)
        except Exception:
            # A boundary: an OpenTelemetry that does not load must not keep the agent from running.
            logger.warning("no events are sent: OpenTelemetry did not load", exc_info=True)
            return None

    def _post_events(self, body: bytes, content_type: str, time_limit_s: float) -> bool:
        endpoint = self.coordinators.in_charge()
        if endpoint is None:
            return False
        status = self.channel.send(
            endpoint, "POST", semconv.LOGS_PATH, body, time_limit_s, content_type
        )
        if status is None or status >= 500:
            # Not said again: it would be stale. The next ones go to whoever is well.
            self.courier.look_after(endpoint)
        return status is not None and status < 300

    def _on_no_answer(self, endpoint: str, no_answer: NoAnswer) -> None:
        if self.channel.is_closed:
            return  # a turn that was held when this connection was replaced
        if self.coordinators.record_no_answer(
            endpoint,
            no_answer.reason,
            leader=no_answer.leader,
            is_planned=no_answer.reason == NOT_LEADER,
        ):
            self.courier.start_probing(endpoint)

    def _on_refusal(self, refusal: Refusal) -> None:
        # A wrong key or version is for a person to mend, once; a full queue is daily business.
        level = logging.DEBUG
        if refusal.type in _SETUP_ERRORS and not self._has_warned_of_setup:
            self._has_warned_of_setup = True
            level = logging.WARNING
        logger.log(
            level,
            "the coordinator gave no lease (%d %s: %s): the call goes to its own base URL",
            refusal.status,
            refusal.type,
            refusal.message,
        )

    def _on_hold(self, hold: HoldInfo) -> None:
        if self.config.on_hold is None:
            return
        try:
            self.config.on_hold(hold)
        except Exception:
            # A boundary: what the hook shows is its own business, the call must go on.
            if not self._has_warned_of_hook:
                self._has_warned_of_hook = True
                logger.warning("on_hold failed; further failures are not logged", exc_info=True)


class _Process:
    """What there is once per process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.connection: Connection | None = None
        self.may_connect_by_itself = True
        self.inherited: list[Connection] = []
        self.inherited_config: Config | None = None
        self.capture: Callable[[Event], None] | None = None
        self.at_fork: list[Callable[[], None]] = []


_process = _Process()


def connect(
    endpoint: str | Sequence[str] | None = None,
    *,
    api_key: str | None = None,
    on_hold: Callable[[HoldInfo], object] | None = None,
    events: bool | None = None,
    tool_keys: bool | None = None,
    spans: bool | None = None,
    chars_per_token: float | None = None,
) -> None:
    """Connect this process to a coordinator. Waits for nothing: the first contact is made behind.

    A second call with the same values does nothing, with others it replaces the connection.
    With `TAO_DISABLED=1` it does nothing at all.

    Args:
        endpoint: The coordinator's URL, `http://coordinator:8700`. Default: `TAO_ENDPOINT`. Several
            (a sequence, or with commas between them; 4 at most) are a leader and its standbys: the
            first that answers and leads is asked, and the next takes its place when it falls away.
        api_key: Its key, if it asks for one. Default: `TAO_API_KEY`. Never sent to a backend.
        on_hold: Called with a `HoldInfo` when a turn is first held and at each further poll, on the
            thread (or in the task) of the held call. What it raises does not reach the agent.
        events: False sends no events, leases stay. Default: off with `OTEL_SDK_DISABLED=true`.
        tool_keys: False keeps command heads out of the events. Default: off with `TAO_TOOL_KEYS=0`.
        spans: True makes standard spans (`invoke_agent`, `execute_tool`) of sessions and tool calls
            on the global tracer provider, for your own tracing backend. For loops of your own:
            frameworks make theirs. Default: off, on with `TAO_SPANS=1`.
        chars_per_token: Characters per token of prompts that no engine has counted yet; every
            counted prompt corrects it. Default: `TAO_CHARS_PER_TOKEN`, else 4.

    Raises:
        ConfigurationError: no endpoint is given or set, or a value cannot work.
    """
    if _config.is_disabled():
        return
    config = resolve_config(
        endpoint,
        api_key=api_key,
        on_hold=on_hold,
        events=events,
        tool_keys=tool_keys,
        spans=spans,
        chars_per_token=chars_per_token,
    )
    with _process.lock:
        replaced = _process.connection
        if replaced is not None and replaced.config == config:
            return
        connection = _process.connection = Connection(config)
    connection.courier.warm_up()
    if replaced is not None:
        replaced.close()


def disconnect() -> None:
    """Send what is queued (within 1 s) and stop; from here on calls pass through unscheduled.

    Called by itself at exit. Without a connection it does nothing.
    """
    with _process.lock:
        connection, _process.connection = _process.connection, None
        _process.inherited_config = None
        _process.may_connect_by_itself = False
    if connection is not None:
        connection.close()


def active() -> Connection | None:
    """The present connection; made at first use if `TAO_ENDPOINT` is set. None: pass through."""
    if _process.connection is None and _process.may_connect_by_itself:
        _connect_by_itself()
    return _process.connection


def emit(event: Event) -> None:
    """Hand an event to whoever captures events, else to the connection, else to nobody."""
    capture = _process.capture
    if capture is not None:
        capture(event)
        return
    connection = active()
    if connection is not None:
        connection.emit(event)


def is_emitting() -> bool:
    """Whether an event would go anywhere: spares its making."""
    if _process.capture is not None:
        return True
    connection = active()
    return connection is not None and connection.emitter is not None


def set_capture(capture: Callable[[Event], None] | None) -> Callable[[Event], None] | None:
    """Redirect all events of this process; returns what they went to before."""
    with _process.lock:
        previous, _process.capture = _process.capture, capture
    return previous


def reset() -> None:
    """Disconnect, and let the environment decide again at the next use; for tests."""
    disconnect()
    with _process.lock:
        _process.may_connect_by_itself = True


def after_fork(action: Callable[[], None]) -> None:
    """Run `action` in each forked child, before anything else of the SDK is used there."""
    _process.at_fork.append(action)


def _connect_by_itself() -> None:
    with _process.lock:
        if not _process.may_connect_by_itself:
            return
        config = _process.inherited_config
        if config is None and _config.has_endpoint_variable() and not _config.is_disabled():
            config = _from_environment()
        if config is not None:
            try:
                _process.connection = Connection(config)
            except ConfigurationError as error:
                logger.warning(NOT_SCHEDULED, error)
        # Looked at once: an environment that changes later takes a `connect`. Said last, because
        # other threads look at it without the lock.
        _process.may_connect_by_itself = False


def _from_environment() -> Config | None:
    try:
        return resolve_config()
    except ConfigurationError as error:
        logger.warning(NOT_SCHEDULED, error)
        return None


def _opened_channel(config: Config) -> SyncChannel:
    try:
        return SyncChannel(config)
    except Exception as error:
        # Whatever an HTTP client cannot be made of: a proxy variable, a missing certificate file.
        raise ConfigurationError(
            f"no HTTP client can be made here ({type(error).__name__}: {error}): check "
            "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
        ) from error


def _flush_when_worker_ends() -> None:
    # Worker processes of multiprocessing end without atexit; they have finalizers of their own.
    if "multiprocessing.util" in sys.modules:
        import multiprocessing.util

        if multiprocessing.parent_process() is not None:
            multiprocessing.util.Finalize(None, disconnect, exitpriority=0)


def _restart_in_child() -> None:
    _process.lock = threading.RLock()
    _events.restart_sequence()
    connection = _process.connection
    if connection is not None:
        # Kept, not closed: its sockets are shared with the parent, its locks may be held there.
        _process.inherited.append(connection)
        _process.connection = None
        _process.inherited_config = connection.config
        _process.may_connect_by_itself = True
    for action in _process.at_fork:
        action()


if sys.platform != "win32":  # it has no fork
    os.register_at_fork(after_in_child=_restart_in_child)
atexit.register(disconnect)
