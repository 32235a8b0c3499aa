"""Events as OpenTelemetry log records over OTLP/HTTP (protobuf).

A private LoggerProvider, never the global one: the agent's own telemetry is left alone, in both
directions. Imported on the background thread only (the SDK and its exporter take 200 ms).
"""

import logging
import threading
from collections.abc import Sequence

import requests
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import (
    _SUPPRESS_INSTRUMENTATION_KEY,  # what the SDK's own background threads set
    Context,
    attach,
    set_value,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import (
    LoggerProvider,
    LogRecordProcessor,
    ReadableLogRecord,
    ReadWriteLogRecord,
)
from opentelemetry.sdk.resources import Resource
from requests.auth import AuthBase

from tao_client import semconv
from tao_client._channel import standing_headers
from tao_client._config import Config
from tao_client._events import Event, new_id
from tao_client._version import __version__

EXPORT_LIMIT_S = 1.0
_EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http._log_exporter"
_TRANSPORT_HEADERS = frozenset({"accept-encoding", "content-length", "content-type", "user-agent"})

_own_threads: set[int] = set()


class OtlpSink:
    """Turns events into log records and posts them to the coordinator. One thread uses it."""

    def __init__(self, config: Config) -> None:
        _mute_exporter_on_this_thread()
        # What we send is not to be traced as the agent's own HTTP calls.
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        self._records = _Collector()
        resource = Resource.create({"service.instance.id": new_id()})
        provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_log_record_processor(self._records)
        self._logger = provider.get_logger(semconv.SCOPE_NAME, __version__)
        session = requests.Session()
        session.auth = _OwnHeaders(standing_headers(config))
        self._exporter = OTLPLogExporter(
            endpoint=config.endpoint + semconv.LOGS_PATH,
            timeout=EXPORT_LIMIT_S,
            compression=Compression.NoCompression,
            session=session,
        )

    def send(self, events: Sequence[Event]) -> bool:
        """Export them as one request; False if they did not arrive."""
        for event in events:
            context = event.context
            self._logger.emit(
                event_name=event.name,
                timestamp=event.timestamp_ns,
                observed_timestamp=event.timestamp_ns,
                severity_number=SeverityNumber.INFO,
                attributes=dict(event.attributes),
                context=context if isinstance(context, Context) else Context(),
            )
        return self._exporter.export(self._records.take()).name == "SUCCESS"

    def close(self) -> None:
        """Stop; an export under way is not repeated."""
        self._exporter.shutdown()


class _Collector(LogRecordProcessor):
    """Holds the records of one batch between the provider and the exporter."""

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
        """Nothing to do: the sink closes the exporter."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Nothing waits here between two batches."""
        return True


class _OwnHeaders(AuthBase):
    """Replaces the headers that the exporter has read from the environment.

    `OTEL_EXPORTER_OTLP_HEADERS` often holds the key of an observability vendor; the coordinator is
    none of its business.
    """

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        for name in list(r.headers):
            if name.lower() not in _TRANSPORT_HEADERS:
                del r.headers[name]
        r.headers.update(self._headers)
        r.headers["content-type"] = "application/x-protobuf"
        return r


def _mute_exporter_on_this_thread() -> None:
    # The stock exporter logs an error for each batch that is lost. The breaker says it once.
    _own_threads.add(threading.get_ident())
    logger = logging.getLogger(_EXPORTER_LOGGER)
    if _is_foreign not in logger.filters:
        logger.addFilter(_is_foreign)


def _is_foreign(record: logging.LogRecord) -> bool:
    return record.thread not in _own_threads
