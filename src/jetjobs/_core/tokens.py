"""What may name a project, module or job, and how a name becomes one token of a subject.

Every byte outside `[A-Za-z0-9_-]` is written `=XX`. The mapping is injective and reversible, and a token that isn't
the one spelling of its name is refused when read: two spellings of one job would be two jobs to the broker.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from jetjobs._core.models import JobAddress
from jetjobs.errors import InvalidNameError

MAX_ADDRESS: Final = 200  # the broker refuses durable names over 255 bytes

_PROJECT: Final = re.compile(r"[a-z0-9_-]{1,32}")
_MODULE: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_JOB: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPE: Final = re.compile(rb"=([0-9A-F]{2})")


def check_project(name: object) -> str:
    """The name itself when it can name a project.

    Raises:
        InvalidNameError: it can't; says what to write instead.
    """
    if not isinstance(name, str) or _PROJECT.fullmatch(name) is None:
        raise InvalidNameError(
            f"{_shown(name)} can't name a project; write 1 to 32 of a-z, 0-9, '_' and '-', as in 'shop'"
        )
    return name


def check_module_name(name: object) -> str:
    """The name itself when it can name a module: letters, digits, `_`, `-`, and dots between parts.

    Raises:
        InvalidNameError: it can't; says what to write instead.
    """
    if not isinstance(name, str) or _MODULE.fullmatch(name) is None:
        raise InvalidNameError(
            f"{_shown(name)} can't name a module; write ASCII letters, digits, '_' and '-', "
            "with dots between parts, as in 'billing.invoices'"
        )
    return name


def check_job_name(name: object) -> str:
    """The name itself when it can name a job: letters, digits, `_` and `-`, no dot.

    Raises:
        InvalidNameError: it can't; says what to write instead.
    """
    if not isinstance(name, str) or _JOB.fullmatch(name) is None:
        raise InvalidNameError(
            f"{_shown(name)} can't name a job; write ASCII letters, digits, '_' and '-' without dots, "
            "as in 'send_invoice'"
        )
    return name


def check_address(module: object, job: object) -> JobAddress:
    """The job's address when both names are allowed and short enough together.

    Raises:
        InvalidNameError: one isn't, or encoded they take more than 200 bytes.
    """
    address = JobAddress(check_module_name(module), check_job_name(job))
    size = len(encode_token(address.module)) + len(encode_token(address.job))
    if size > MAX_ADDRESS:
        raise InvalidNameError(
            f"module and job name take {size} bytes in a subject, at most {MAX_ADDRESS} are allowed "
            f"(a dot counts for three): shorten {_shown(str(address))}"
        )
    return address


def split_address(text: object) -> JobAddress:
    """The address written `module.job`: job names have no dots, so the last dot is the border.

    >>> split_address("billing.invoices.send")
    JobAddress(module='billing.invoices', job='send')
    """
    module, dot, job = text.rpartition(".") if isinstance(text, str) else ("", "", "")
    if not dot:
        raise InvalidNameError(f"{_shown(text)} doesn't name a job; write 'module.job', as in 'billing.send_invoice'")
    return check_address(module, job)


@lru_cache(maxsize=8192)
def encode_token(name: str) -> str:
    """The name as one subject token.

    >>> encode_token("billing.invoices")
    'billing=2Einvoices'
    """
    try:
        data = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidNameError(f"{_shown(name)} holds half a character and can't be written as UTF-8") from error
    if not data:
        raise InvalidNameError("an empty name can't be part of a subject")
    return _UNSAFE.sub(_escape, data).decode()


@lru_cache(maxsize=8192)
def decode_token(token: str) -> str:
    """The name a token stands for.

    Raises:
        InvalidNameError: `encode_token` writes no such token.
    """
    try:
        name = _ESCAPE.sub(_unescape, token.encode()).decode()
        if encode_token(name) == token:
            return name
    except UnicodeError:
        pass
    raise InvalidNameError(f"{_shown(token)} is not a name as jetjobs writes it into subjects")


def _escape(match: re.Match[bytes]) -> bytes:
    return b"=%02X" % match[0][0]


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def _shown(name: object) -> str:
    text = ascii(name)
    return text if len(text) <= 80 else text[:77] + "..."
