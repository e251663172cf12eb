"""A web application that has words counted by a job, and shows how far that is."""

from __future__ import annotations

from typing import Any

from flask import Flask, abort, request
from words import Text, count, words

from jetjobs import RunNotFound
from jetjobs.sync import JobClient

app = Flask(__name__)

# One for the process, made at import: nothing is connected yet. Each worker that gunicorn forks connects at its first
# call. NATS_URL and JETJOBS_PROJECT say where to.
jobs = JobClient(modules=[words])


@app.post("/counts")
def order() -> tuple[dict[str, Any], int]:
    title, text = request.form["title"], request.form["text"]
    # The key makes a double click, and a request repeated by a proxy, the same run.
    run = count.trigger_blocking(Text(title=title, text=text), idempotency_key=f"count-{title}")
    return {"run": run.run_id, "again": run.duplicate}, 202


@app.get("/counts/<run_id>")
def show(run_id: str) -> dict[str, Any]:
    try:
        record = jobs.runs.get(run_id, module="words", job="count")
    except RunNotFound:
        abort(404)
    return {"status": record.status, "result": record.result}
