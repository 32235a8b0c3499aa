"""Events as OpenTelemetry log records over OTLP/HTTP (protobuf).

A private LoggerProvider, never the global one: the agent's own telemetry is left alone, in both
directions. Its records are encoded by OpenTelemetry's own encoder and sent over the connection
that we have anyhow. The stock exporter is not used: it repeats what is stale, logs an error for
each lost batch, sends along the headers that `OTEL_EXPORTER_OTLP_HEADERS` holds for an
observability vendor, and shares its sockets with forked children.

Imported when a connection is made (the OpenTelemetry SDK takes 100 ms), not on the background
thread: it starts a thread pool while it is imported, which fails when the process is about to end.
"""

from collections.abc import Sequence
from typing import Protocol

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import (
    _SUPPRESS_INSTRUMENTATION_KEY,  # what OpenTelemetry's own background threads set
    Context,
    attach,
    set_value,
)
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import (
    LoggerProvider,
    LogRecordProcessor,
    ReadableLogRecord,
    ReadWriteLogRecord,
)
from opentelemetry.sdk.resources import Resource

from tao_client import semconv
from tao_client._events import AttributeValue, Event, new_id
from tao_client._version import __version__

EXPORT_LIMIT_S = 1.0


class Post(Protocol):
    """How a batch goes out."""

    def __call__(self, body: bytes, content_type: str, time_limit_s: float, /) -> bool:
        """Send it; False if it did not arrive."""
        ...


class OtlpSink:
    """Turns events into log records and posts them to the coordinator. One thread uses it."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._records = _Collector()
        resource = Resource.create({"service.instance.id": new_id()})
        provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_log_record_processor(self._records)
        self._logger = provider.get_logger(semconv.SCOPE_NAME, __version__)

    def send(self, events: Sequence[Event]) -> bool:
        """Post them as one request; False if they did not arrive."""
        # What we send is not to be traced as the agent's own HTTP calls; this thread is ours.
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True, Context()))
        for event in events:
            context = event.context
            self._logger.emit(
                event_name=event.name,
                timestamp=event.timestamp_ns,
                observed_timestamp=event.timestamp_ns,
                severity_number=SeverityNumber.INFO,
                attributes={name: _sendable(value) for name, value in event.attributes.items()},
                context=context if isinstance(context, Context) else Context(),
            )
        body = encode_logs(self._records.take()).SerializeToString()
        return self._post(body, "application/x-protobuf", EXPORT_LIMIT_S)


def _sendable(value: AttributeValue) -> AttributeValue:
    """Without lone surrogates, which models write and no encoder takes: a batch would be lost."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, tuple):
        return tuple(one.encode("utf-8", "replace").decode() for one in value)
    return value


class _Collector(LogRecordProcessor):
    """Holds the records of one batch between the provider and the encoder."""

    def __init__(self) -> None:
        self._records: list[ReadableLogRecord] = []

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        assert log_record.resource is not None  # the provider has set it
        self._records.append(
            ReadableLogRecord(
                log_record=log_record.log_record,
                resource=log_record.resource,
                instrumentation_scope=log_record.instrumentation_scope,
                limits=log_record.limits,
            )
        )

    def take(self) -> list[ReadableLogRecord]:
        records, self._records = self._records, []
        return records

    def shutdown(self) -> None:
        """Nothing is held here between two batches."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Nothing is held here between two batches."""
        return True
