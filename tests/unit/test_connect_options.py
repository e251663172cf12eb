from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetjobs._core.connect_options import hide_login
from jetjobs.config import (
    Surroundings,
    connect_options,
)
from jetjobs.errors import ConfigError


def around(environ: dict[str, str] | None = None, file: dict[str, Any] | None = None) -> Surroundings:
    return Surroundings(environ or {}, file or {}, Path("/app/pyproject.toml") if file else None)


def test_without_a_word_it_is_the_local_server() -> None:
    assert dict(connect_options(None, around())) == {"servers": ["nats://localhost:4222"]}


@pytest.mark.parametrize(
    "given, servers",
    [
        ("nats://a:1", ["nats://a:1"]),
        ("a:1, tls://b", ["nats://a:1", "tls://b"]),
        (["a", "wss://b:8080"], ["nats://a", "wss://b:8080"]),
        ({"servers": "nats://a:1"}, ["nats://a:1"]),
        ({"url": "nats://a:1", "user": None}, ["nats://a:1"]),
        ("nats://a:4222/", ["nats://a:4222/"]),
        ("ws://a:80/nats", ["ws://a:80/nats"]),
        ("nats://[::1]:4222", ["nats://[::1]:4222"]),
    ],
)
def test_servers_are_given_in_many_ways(given: Any, servers: list[str]) -> None:
    assert dict(connect_options(given, around())) == {"servers": servers}


SEED = "SU" + "A" * 56


@pytest.mark.parametrize(
    "environ, option",
    [
        ({"NATS_URL": "nats://a:1"}, {"servers": ["nats://a:1"]}),
        ({"NATS_USER": "me", "NATS_PASSWORD": "s3cr3t"}, {"user": "me", "password": "s3cr3t"}),
        ({"NATS_TOKEN": "s3cr3t"}, {"token": "s3cr3t"}),
        ({"NATS_CREDS": "/x.creds"}, {"user_credentials": "/x.creds"}),
        ({"NATS_NKEY": "/x.nk"}, {"nkeys_seed": "/x.nk"}),
        ({"NATS_NKEY": SEED}, {"nkeys_seed_str": SEED}),
        ({"NATS_CA": "/ca"}, {"tls_ca": "/ca"}),
        ({"NATS_CERT": "/c", "NATS_KEY": "/k"}, {"tls_cert": "/c", "tls_key": "/k"}),
        ({"NATS_INBOX": "_INBOX_me"}, {"inbox_prefix": "_INBOX_me"}),
    ],
)
def test_every_option_has_a_variable(environ: dict[str, str], option: dict[str, Any]) -> None:
    assert dict(connect_options(None, around(environ))) == {"servers": ["nats://localhost:4222"], **option}


def test_argument_before_environment_before_file_for_servers_and_files() -> None:
    environ = {"NATS_URL": "nats://env", "NATS_CA": "/env.ca"}
    file = {"nats": "nats://file", "nats_ca": "file.ca", "nats_creds": "me.creds"}
    assert dict(connect_options("nats://arg", around(environ, file))) == {
        "servers": ["nats://arg"],
        "tls_ca": "/env.ca",
        "user_credentials": "/app/me.creds",
    }
    assert dict(connect_options(None, around({}, file)))["tls_ca"] == "/app/file.ca"
    assert dict(connect_options({"tls_ca": "/arg.ca"}, around(environ, file)))["servers"] == ["nats://env"]


@pytest.mark.parametrize(
    "given", ["nats://me:pw@arg", {"servers": "nats://arg", "user": "me", "password": "pw"}, ["nats://tok@arg"]]
)
def test_a_login_comes_from_one_place_only(given: Any) -> None:
    options = connect_options(given, around({"NATS_TOKEN": "other"}, {"nats_creds": "x.creds"}))
    assert "token" not in options
    assert "user_credentials" not in options


@pytest.mark.parametrize(
    "given, environ, message",
    [
        ("http://a", {}, "'http://a' is no NATS URL; write \"nats://localhost:4222\""),
        ("nats://", {}, "'nats://' is no NATS URL"),
        ("nats://a:port", {}, "is no NATS URL"),
        ("nats://a:99999", {}, "is no NATS URL"),
        ("nats://a b", {}, "is no NATS URL"),
        ("nats://me:s3cr3t@a:port", {}, "'nats://…@a:port' is no NATS URL"),
        ("nats://a:99999", {}, "'nats://a:99999' is no NATS URL: its port must be a number from 1 to 65535; write"),
        ("nats://a:0", {}, "its port must be a number"),
        ("a:s3cr3t@b:port", {}, "'…@b:port' is no NATS URL: its port"),
        ("nats://me:s3cr3t@:4222", {}, "it names no host"),
        ("nats://[::1:4222", {}, "its host can't be read"),
        ("nats://a:1 nats://b:1", {}, r"it holds a space \(several URLs have commas"),
        ("nats://me:s3cr3t/x@a:1", {}, "user and password can't hold / .*; set NATS_USER and NATS_PASSWORD"),
        ("nats:/a:4222", {}, "'nats:/a:4222' is no NATS URL: nothing can follow host and port"),
        ("nats://a:4222/shop", {}, "nothing can follow host and port"),
        (None, {"NATS_URL": "nats://me:s3cr3t@a:99999"}, "NATS_URL: 'nats://…@a:99999' is no NATS URL: its port"),
        (None, {"NATS_URL": " , "}, "NATS_URL: there is no server to connect to"),
        ("nats://a:0", {"NATS_URL": "nats://b"}, "^'nats://a:0' is no"),
        (5, {}, "servers must be a URL .* not 5"),
        ([5], {}, "a server is a URL .* not of type int"),
        (" , ", {}, "there is no server to connect to"),
        ({"user": "a", "token": "s3cr3t"}, {}, "user and token are given, but one way to log in is enough"),
        ({}, {"NATS_CREDS": "/x", "NATS_NKEY": SEED}, "user_credentials and nkeys_seed_str are given"),
        ({}, {"NATS_PASSWORD": "s3cr3t"}, "a password is given without a user; set NATS_USER"),
        ({}, {"NATS_CERT": "/c"}, "tls_cert is given without tls_key"),
        ({}, {"NATS_KEY": "/k"}, "tls_key is given without tls_cert"),
        ({}, {"NATS_INBOX": "a.*"}, "inbox_prefix must be a subject without wildcards"),
        ({}, {"NATS_INBOX": "a b"}, "inbox_prefix must be a subject without wildcards"),
    ],
)
def test_connections_that_are_refused_without_showing_secrets(
    given: Any, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        connect_options(given, around(environ))
    assert "s3cr3t" not in str(caught.value)
    assert SEED not in str(caught.value)


def test_a_wrong_url_in_a_file_is_found_there() -> None:
    with pytest.raises(ConfigError, match=r"^nats in \[tool.jetjobs\]: 'http://a' is no NATS URL; write"):
        connect_options(None, around({}, {"nats": "http://a"}))


@pytest.mark.parametrize("key", ["nats_password", "nats_token"])
def test_secrets_are_not_taken_from_a_file(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} in .*pyproject.toml: a secret .*variable {key.upper()}") as caught:
        connect_options(None, around({}, {key: "s3cr3t"}))
    assert "s3cr3t" not in str(caught.value)


def test_options_show_no_secret() -> None:
    given = {"servers": ["nats://me:s3cr3t@a:1", "nats://s3cr3t@b"], "user": "me", "password": "s3cr3t"}
    options = connect_options(given, around())
    assert "s3cr3t" not in repr(options) + str(options) + options.shown_servers
    assert options.shown_servers == "nats://…@a:1, nats://…@b"
    assert "'user': 'me'" in repr(options)
    assert SEED not in repr(connect_options(None, around({"NATS_NKEY": SEED})))
    assert "s3cr3t" not in repr(connect_options({"token": "s3cr3t"}, around()))
    assert len(options) == 3


@pytest.mark.parametrize(
    "server, shown",
    [("nats://a:1", "nats://a:1"), ("a:1", "a:1"), ("x:y@a", "…@a"), ("nats://u:p@w://x@a:1", "nats://…@a:1")],
)
def test_a_login_in_a_url_is_hidden(server: str, shown: str) -> None:
    assert hide_login(server) == shown
