"""Names on the wire: events, attributes, headers, protocol version. Constants only.

The single module that the SDK, the integrations and the coordinator share. Names of the
OpenTelemetry GenAI semantic conventions are used where they exist (all of `gen_ai.*` is still in
"Development", so they are written out here and never imported from a semantic-conventions package);
`tao.*` where they do not. Durations are double seconds, relative to the record's own timestamp: no
shared clock is assumed. No name here ever carries a prompt, an argument or an output.
"""

from typing import Final

SCOPE_NAME: Final = "tao_client"
"""Instrumentation scope of every event that the SDK emits."""

PROTOCOL_VERSION: Final = "1"
"""Version of the lease API. A coordinator refuses any other with one clear error."""

HEADER_PROTOCOL: Final = "x-tao-protocol"
HEADER_CLIENT: Final = "x-tao-client"
"""`name/version` of the calling client, for the operator's logs."""
HEADER_SESSION: Final = "X-Session-ID"
"""Goes along with every model call: vLLM, Dynamo, llm-d, Ray Serve and LiteLLM all read it."""

DEFAULT_PORT: Final = 8700
LOGS_PATH: Final = "/v1/logs"
TOKENS_MAX: Final = 100_000_000
"""Of one prompt or reply on the wire; an engine that counts more is not believed."""

# --- event names ------------------------------------------------------------------------------

SESSION_START: Final = "tao.session.start"
SESSION_END: Final = "tao.session.end"
SESSION_WAIT: Final = "tao.session.wait"
SESSION_DEADLINE: Final = "tao.session.deadline"
SESSION_HEARTBEAT: Final = "tao.session.heartbeat"
TOOL_START: Final = "tao.tool.start"
TOOL_PROGRESS: Final = "tao.tool.progress"
TOOL_END: Final = "tao.tool.end"
INFERENCE_START: Final = "tao.inference.start"
INFERENCE_END: Final = "tao.inference.end"

EVENT_NAMES: Final = frozenset(
    {
        SESSION_START,
        SESSION_END,
        SESSION_WAIT,
        SESSION_DEADLINE,
        SESSION_HEARTBEAT,
        TOOL_START,
        TOOL_PROGRESS,
        TOOL_END,
        INFERENCE_START,
        INFERENCE_END,
    }
)

# --- standard attributes ----------------------------------------------------------------------

CONVERSATION_ID: Final = "gen_ai.conversation.id"
"""Required on every event: the session's id, 1-128 characters of `[A-Za-z0-9._:-]`."""
AGENT_NAME: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
OPERATION_NAME: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
"""Unique inside one session only: models make these up."""
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
ERROR_TYPE: Final = "error.type"
RECORD_UID: Final = "log.record.uid"
"""De-duplication key; OTLP delivers at least once."""

# --- own attributes ---------------------------------------------------------------------------

ROOT_SESSION_ID: Final = "tao.session.root.id"
PARENT_SESSION_ID: Final = "tao.session.parent.id"
SESSION_PRIORITY: Final = "tao.session.priority"
"""Integer; higher goes first inside a tenant. Default 0."""
SESSION_END_REASON: Final = "tao.session.end.reason"
"""One of completed, cancelled, error, abandoned."""
EVENT_SEQUENCE: Final = "tao.event.sequence"
"""Integer, counts up per emitting process: order and gap detection."""
WAIT_REASON: Final = "tao.wait.reason"
WAIT_EXPECTED: Final = "tao.wait.expected_duration"
DEADLINE_REMAINING: Final = "tao.deadline.remaining"
"""Seconds until the session wants its backend again."""
TOOL_KEY: Final = "tao.tool.key"
"""Command head such as `python -m pytest`; never arguments. Can be switched off."""
TOOL_TIMEOUT: Final = "tao.tool.timeout"
"""Hard limit of the call, seconds from the start record's timestamp."""
TOOL_BACKGROUND: Final = "tao.tool.background"
"""True when the session does not wait for this call."""
TOOL_PROGRESS_RATIO: Final = "tao.tool.progress.ratio"
"""Share of the work done, 0..1."""
TOOL_REMAINING: Final = "tao.tool.remaining"
"""Expected seconds until the call ends."""
TOOL_DURATION: Final = "tao.tool.duration"
"""Seconds the call took, measured on the emitter's monotonic clock."""
OPEN_CALL_IDS: Final = "tao.tool.open.call_ids"
"""On heartbeats: ids of the tool calls still open; repairs lost end records."""
