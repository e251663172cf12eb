"""An operator, its accounts and users' credentials files, for a server that knows its users by JWT alone.

Needs the package nkeys: `pytest.importorskip("nkeys")` first.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys

_UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
_ACCOUNT_LIMITS = {
    **_UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1,
    "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
}  # fmt: skip
_SYSTEM_LIMITS = {**_ACCOUNT_LIMITS, "mem_storage": 0, "disk_storage": 0}


class Operator:
    """`conf` makes a server believe this operator; `credentials` are of one account with JetStream."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys = {
            name: nkeys.encode_seed(os.urandom(32), prefix)
            for name, prefix in (
                ("operator", nkeys.PREFIX_BYTE_OPERATOR),
                ("system", nkeys.PREFIX_BYTE_ACCOUNT),
                ("account", nkeys.PREFIX_BYTE_ACCOUNT),
            )
        }
        system, account = self._public("system"), self._public("account")
        own = self._signed("operator", self._public("operator"), {"type": "operator", "system_account": system})
        lines = [
            f"operator: {own}",
            f"system_account: {system}",
            "resolver: MEMORY",
            "resolver_preload: {",
            f"  {system}: {self._signed('operator', system, _account(_SYSTEM_LIMITS))}",
            f"  {account}: {self._signed('operator', account, _account(_ACCOUNT_LIMITS))}",
            "}",
        ]
        self.conf = "\n".join(lines)

    def credentials(self, *, expires_in: float, payload: int = -1) -> Path:
        """A credentials file that is good for so many seconds; less than none: it has run out.

        A message of more bytes than `payload` ends its user's connection, which no server says beforehand.
        """
        seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        user = nkeys.from_seed(seed).public_key.decode()
        jwt = self._signed(
            "account", user, {"type": "user", **_UNLIMITED, "payload": payload}, exp=int(time.time() + expires_in)
        )
        path = self._folder / f"user{expires_in:g}.creds"
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
        )
        return path

    def _public(self, who: str) -> str:
        return nkeys.from_seed(self._keys[who]).public_key.decode()

    def _signed(self, issuer: str, subject: str, claims: dict[str, Any], **more: Any) -> str:
        body = {
            "jti": base64.b32encode(os.urandom(20)).decode(),
            "iat": int(time.time()) - 86_400,
            "iss": self._public(issuer),
            "sub": subject,
            "name": subject[:8],
            **more,
            "nats": {"version": 2, **claims},
        }
        text = b".".join(map(_text, ({"typ": "JWT", "alg": "ed25519-nkey"}, body)))
        signature = nkeys.from_seed(self._keys[issuer]).sign(text)
        return (text + b"." + _base64(signature)).decode()


def _account(limits: dict[str, Any]) -> dict[str, Any]:
    return {"type": "account", "limits": limits}


def _text(part: dict[str, Any]) -> bytes:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
