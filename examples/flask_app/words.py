"""The job. It knows nothing of Flask, and the process that runs it needs no Flask."""

from __future__ import annotations

from pydantic import BaseModel

from jetjobs import JobContext, Module

words = Module("words")


class Text(BaseModel):
    title: str
    text: str


@words.job(max_concurrency=4, max_attempts=3, timeout="1m")
def count(ctx: JobContext, text: Text) -> dict[str, int]:
    ctx.log("counting", title=text.title)
    return {"words": len(text.text.split()), "letters": sum(letter.isalpha() for letter in text.text)}
