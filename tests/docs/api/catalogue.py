"""Which public name is told on which page, and which of its members are for users.

A name nobody placed finds its page by the module it is defined in, so a new one needs no line here.
"""

from __future__ import annotations

from dataclasses import dataclass

PUBLIC_MODULES = (
    "jetjobs",
    "jetjobs.outcomes",
    "jetjobs.errors",
    "jetjobs.sync",
    "jetjobs.testing",
    "jetjobs.pytest_plugin",
    "jetjobs.embedded",
)


@dataclass(frozen=True, slots=True)
class Page:
    """One page: what stands above, the names in their order, and the modules whose other names join them."""

    file: str
    title: str
    opening: str
    names: tuple[str, ...]
    modules: tuple[str, ...]


PAGES = (
    Page(
        "declaring.md",
        "Declaring jobs",
        "How to use them: [write jobs](../../how-to/write-jobs.md).",
        (
            "jetjobs.Module",
            "jetjobs.declaring.job",
            "jetjobs.Job",
            "jetjobs.JobPolicy",
            "jetjobs.Backoff",
            "jetjobs.JobRetention",
            "jetjobs.declaring.JobOptions",
        ),
        ("jetjobs.module", "jetjobs.declaring", "jetjobs._core.policy"),
    ),
    Page(
        "triggers.md",
        "Triggers in code",
        "How to use them: [run a job by the clock](../../how-to/schedules.md), "
        "[run a job for each event](../../how-to/events.md).",
        ("jetjobs.Cron", "jetjobs.Every", "jetjobs.OnEvent"),
        ("jetjobs._core.triggers", "jetjobs._core.event_filter", "jetjobs._core.cron"),
    ),
    Page(
        "context.md",
        "What a handler receives",
        "How to use it: [write jobs](../../how-to/write-jobs.md).",
        ("jetjobs.JobContext",),
        ("jetjobs.context",),
    ),
    Page(
        "outcomes.md",
        "What a handler raises to steer its run",
        "A handler that returns has SUCCEEDED; any other exception is a failed attempt. These say more.",
        ("jetjobs.Skip", "jetjobs.Discard", "jetjobs.Snooze", "jetjobs.RetryAfter", "jetjobs.JobInterrupted"),
        ("jetjobs.outcomes",),
    ),
    Page(
        "host.md",
        "Hosts",
        "How to use them: [run a host](../../how-to/run-a-host.md). Every setting, with its variable and default, is "
        "in [settings](../settings.md).",
        ("jetjobs.JobHost", "jetjobs.host.HostHealth", "jetjobs.HostSettings"),
        ("jetjobs.host", "jetjobs.config", "jetjobs._core.settings"),
    ),
    Page(
        "client.md",
        "The client",
        "How to use it: [trigger from another service](../../how-to/trigger-from-another-service.md).",
        ("jetjobs.JobClient", "jetjobs.client.JobHandle", "jetjobs.JobRun", "jetjobs.triggered.TriggerOptions"),
        ("jetjobs.client", "jetjobs._client", "jetjobs.triggered"),
    ),
    Page(
        "blocking.md",
        "The blocking client",
        "The calls of [the client](client.md) without `await`. How to use it: "
        "[trigger from code that blocks](../../how-to/blocking.md).",
        ("jetjobs.sync.JobClient",),
        ("jetjobs.sync", "jetjobs._client.blocking", "jetjobs._client.blocking_run"),
    ),
    Page(
        "values.md",
        "Records and other values",
        "Frozen values that calls give. Instants are aware UTC `datetime`s, spans `timedelta`s.",
        (
            "jetjobs._core.durations.DurationLike",
            "jetjobs._core.durations.InstantLike",
            "jetjobs.RunRecord",
            "jetjobs.RunStatus",
            "jetjobs.TriggerInfo",
            "jetjobs.Attempt",
            "jetjobs.RunError",
            "jetjobs.RunChange",
            "jetjobs.ChangeOutcome",
        ),
        ("jetjobs",),
    ),
    Page(
        "testing.md",
        "For your tests",
        "How to use it: [test your jobs](../../how-to/test-your-jobs.md), "
        "[test against a real broker](../../how-to/test-against-a-real-broker.md).",
        (
            "jetjobs.testing.make_context",
            "jetjobs.testing.HandlerContext",
            "jetjobs.testing.run_job",
            "jetjobs.testing.run_job_blocking",
            "jetjobs.testing.RunOutcome",
            "jetjobs.testing.RecordedChild",
            "jetjobs.testing.host_in_thread",
        ),
        ("jetjobs.testing", "jetjobs.pytest_plugin"),
    ),
    Page(
        "errors.md",
        "Error classes",
        "The tree, and what to do about each: [errors](../errors.md).",
        ("jetjobs.errors.JetJobsError",),
        ("jetjobs.errors",),
    ),
    Page(
        "embedded.md",
        "The embedded broker",
        "For tools and tests of your own; [test against a real broker](../../how-to/test-against-a-real-broker.md) "
        "shows it at work.",
        ("jetjobs.embedded.EmbeddedServer",),
        ("jetjobs.embedded", "jetjobs._nats.server", "jetjobs._nats.server_binary"),
    ),
)

# What hosts and clients need of each other: public to the code around, of no use to a caller.
INNER = frozenset(
    {
        "Job.bind",
        "Job.check_payload",
        "Job.descriptor",
        "Job.invoke",
        "Job.named",
        "Job.origin",
        "Job.parse_payload",
        "Job.unbind",
        "Job.under_old_names",
        "JobHandle.check",
        "JobHandle.over",
        "JobHandle.trigger_checked",
        "JobHandle.trigger_named",
        "JobRun.of",
        "Module.bind",
        "Module.has_hooks",
        "Module.open_state",
        "Module.run_after",
        "Module.run_before",
        "Module.unbind",
        "RunRecord.but",
        "RunRecord.of",
        "TriggerRequest.asked",
        "Cron.describe",
        "Cron.line",
        "Every.describe",
        "OnEvent.describe",
        "OnEvent.digest",
    }
)
# Modules whose classes are no part of the public surface, though signatures name them.
INNER_MODULES = (
    "jetjobs._ports",
    "jetjobs._clock",
    "jetjobs._engine",
    "jetjobs._nats",
    "jetjobs._client.scope",
    "jetjobs._client.publishing",
    "jetjobs._client.calls",
    "jetjobs._client.blocking.",
    "jetjobs._core.cron",
    "jetjobs._core.event_filter.Field",
    "jetjobs._core.policy.PolicyOptions",
    "jetjobs._core.settings.ClientOptions",
    "jetjobs._core.settings.HostOptions",
    "jetjobs._core.triggers.ScheduleOptions",
    "jetjobs.context.ChildTrigger",
    "jetjobs._journal",
    "jetjobs.handlers",
    "jetjobs.declaring",
    "jetjobs.testing.memory",
)
