"""A FastAPI application with a job host inside: one process serves requests and runs jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel

from jetjobs import JobClient, JobContext, JobHost, Module, RunNotFound

words = Module("words")


class Text(BaseModel):
    title: str
    text: str


@words.job(max_concurrency=4, max_attempts=3, timeout="1m")
async def count(ctx: JobContext, text: Text) -> dict[str, int]:
    ctx.log("counting", title=text.title)
    return {"words": len(text.text.split()), "letters": sum(letter.isalpha() for letter in text.text)}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    # NATS_URL and JETJOBS_PROJECT say where to. Leaving the block drains: running handlers get 20 s to finish.
    async with JobHost([words]) as host, JobClient() as jobs:
        yield {"host": host, "jobs": jobs}


app = FastAPI(lifespan=lifespan)


def jobs_of(request: Request) -> JobClient:
    return request.state.jobs


@app.post("/counts", status_code=202)
async def order(text: Text) -> dict[str, Any]:
    # The host's own modules are bound to it: this is the job's own trigger.
    run = await count.trigger(text, idempotency_key=f"count-{text.title}")
    return {"run": run.run_id, "again": run.duplicate}


@app.post("/counts/from-a-thread", status_code=202)
def order_and_block(text: Text) -> dict[str, Any]:
    # FastAPI runs a plain function in a thread, which may block.
    run = count.trigger_blocking(text, idempotency_key=f"count-{text.title}")
    return {"run": run.run_id, "again": run.duplicate}


@app.get("/counts/{run_id}")
async def show(run_id: str, jobs: Annotated[JobClient, Depends(jobs_of)]) -> dict[str, Any]:
    try:
        record = await jobs.runs.get(run_id, module="words", job="count")
    except RunNotFound:
        raise HTTPException(404, "no such run") from None
    return {"status": record.status, "result": record.result}


# For whoever starts and stops this process. Neither needs a round trip to the broker.


@app.get("/live")
async def live(request: Request, response: Response) -> dict[str, bool]:
    health = request.state.host.health()
    response.status_code = 200 if health.live else 503
    return {"live": health.live}


@app.get("/ready")
async def ready(request: Request, response: Response) -> dict[str, Any]:
    health = request.state.host.health()
    response.status_code = 200 if health.ready else 503
    return {"ready": health.ready, "problems": health.problems}
