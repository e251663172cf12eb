"""What hosts and clients take as modules and options, and what they say to anything else."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jetjobs import ConfigError, DuplicateJobError, JobContext, JobHost, Module
from jetjobs._given import modules_given
from jetjobs.errors import HostError
from jetjobs.sync import JobClient

shop = Module("shop")


@shop.job
async def pack(ctx: JobContext) -> None: ...


class Billing(Module):
    name = "billing"


def test_one_module_or_several():
    other = Module("other")
    assert modules_given(shop, "JobHost") == (shop,)
    assert modules_given(iter([shop, other]), "JobHost") == (shop, other)
    with pytest.raises(DuplicateJobError, match="module shop is given twice; leave one of them out"):
        JobHost([shop, other, shop], project="p")
    assert JobClient(project="p", modules=shop).project == "p"


def test_jobs_called_alike_in_two_modules_of_one_name():
    twin = Module("shop")
    JobHost([shop, twin], project="p")
    twin.expose_job("pack", pack.handler)
    with pytest.raises(DuplicateJobError, match=r"shop\.pack"):
        JobHost([shop, twin], project="p")


@pytest.mark.parametrize(
    "given, says",
    [
        (pack, "not the job shop.pack; give it the module that declares"),
        ([pack], "not the job shop.pack"),
        (["shop"], r"not 'shop'; write JobHost\(\[billing\], …\)"),
        ("shop", "not 'shop'"),
        (5, "not 5"),
        ([Billing], r"not the class Billing; make one of it: Billing\(\)"),
        (Billing, "not the class Billing"),
        (
            [sys.modules[__name__]],
            rf"not the Python module {__name__}; give it the Module in there, as {__name__}\.shop",
        ),
    ],
)
def test_anything_else_is_told_what_to_write(given: Any, says: str):
    with pytest.raises(ConfigError, match=f"JobHost takes modules, {says}"):
        JobHost(given, project="p")


def test_one_pattern_without_a_comma_is_one():
    assert JobHost([shop], project="p", disable="shop.pack").switches.disable == ("shop.pack",)


def test_settings_are_settings():
    wrong: Any = {"drain": "5s"}
    with pytest.raises(ConfigError, match=r"settings must be HostSettings\(drain="):
        JobHost([shop], project="p", settings=wrong)


async def test_run_is_not_for_a_thread_whose_loop_runs():
    with pytest.raises(HostError, match="on this thread one is running already"):
        JobHost([shop], project="p").run()


@pytest.mark.parametrize("version", ["latest", "3f2a1c9", "", "1.4 beta"])
def test_a_version_that_names_no_release_is_refused(version: str):
    with pytest.raises(ConfigError, match=r"write it as PEP 440 does: 1\.4\.0"):
        JobHost([shop], project="p", version=version)


def test_a_release_with_a_commit_behind_it():
    assert JobHost([shop], project="p", version="1.4.0+3f2a1c").version == "1.4.0+3f2a1c"
    assert JobHost([shop], project="p").version is None
