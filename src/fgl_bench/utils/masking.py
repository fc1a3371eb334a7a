"""Masking of secrets in configurations, command lines and messages: ``***`` replaces them in all output."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from omegaconf import OmegaConf

STARS = "***"
WORDS = "password|passwd|pwd|passphrase|secret|credentials?|(?:api|access|private)_?key|(?:access|api|auth|bearer|refresh)_?token"
KEY = re.compile(rf"(?:.*[_.-])?(?:{WORDS})", re.IGNORECASE)
ADDRESS = re.compile(r"(\w://[^\s:/@'\"]*:)[^\s'\"]+@|(\w://)[^\s:/@'\"]+@")  # up to the last @: a password may hold one
PARAMETER = re.compile(
    rf"""((?:\b[\w.-]*?(?:{WORDS}|token)|[?&](?:key|sig|signature|code|auth))=)('[^']*'|"[^"]*"|[^&\s'"]+)""", re.IGNORECASE
)


def masked(text: str) -> str:
    """``text`` without passwords and tokens in addresses (``mysql://user:***@host``) and after keys (``client_secret=***``)."""
    if "://" not in text and "=" not in text:
        return text
    return PARAMETER.sub(rf"\1{STARS}", ADDRESS.sub(lambda match: f"{match[1] or match[2]}{STARS}@", text))


def masked_config(value: Any, key: str = "") -> Any:
    """Plain values, strings :func:`masked`, and ``***`` for those whose key is named like a secret (in ``tracker``, ``token`` too)."""
    if isinstance(value, Mapping):
        return {name: masked_config(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked_config(inner, key) for inner in value]
    secret = KEY.fullmatch(key) or (key.startswith(".tracker.") and key.endswith("token"))
    if secret and isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return STARS
    return masked(value) if isinstance(value, str) else value


def masked_yaml(config: Any) -> str:
    """:func:`masked_config` as yaml."""
    return OmegaConf.to_yaml(OmegaConf.create(masked_config(config)))


@contextmanager
def masking_hydra() -> Iterator[None]:
    """Mask all yaml that Hydra writes or prints inside the context: ``--cfg job``, ``multirun.yaml`` and the files of ``.hydra``."""
    to_yaml = OmegaConf.to_yaml

    def without(cfg: Any, *, resolve: bool = False, sort_keys: bool = False) -> str:
        plain = OmegaConf.to_container(cfg, resolve=resolve, enum_to_str=True) if OmegaConf.is_config(cfg) else cfg
        return to_yaml(OmegaConf.create(masked_config(plain)), sort_keys=sort_keys)

    OmegaConf.to_yaml = staticmethod(without)  # type: ignore[method-assign]
    try:
        yield
    finally:
        OmegaConf.to_yaml = staticmethod(to_yaml)  # type: ignore[method-assign]


def without_secrets(text: str, owner: Any) -> str:
    """``text`` (an error's) :func:`masked`, and without the passwords in addresses that the attributes of ``owner`` hold."""
    for value in vars(owner).values() if hasattr(owner, "__dict__") else ():
        if isinstance(value, str) and "://" in value:
            for password in passwords(value):
                text = text.replace(password, STARS)
    return masked(text)


def passwords(address: str) -> list[str]:
    """The password in an address, as written and decoded; empty where there is none."""
    try:
        password = urlsplit(address).password
    except ValueError:
        password = None
    return [text for text in dict.fromkeys((password, unquote(password))) if len(text) > 2] if password else []


class Formatter(logging.Formatter):
    """Hydra's logging of a sweep repeats the command line."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))
