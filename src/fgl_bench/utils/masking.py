"""Passwords in addresses (``tracker.uri``): what is written or printed has ``***`` in their place."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from omegaconf import OmegaConf

STARS = "***"
ADDRESS = re.compile(r"(\w://[^\s:/@'\"]*:)[^\s'\"]+@")  # up to the last @: a password may hold one
PARAMETER = re.compile(r"(\b(?:password|passwd|pwd|token|secret|api_?key)=)[^&\s'\"]+", re.IGNORECASE)


def masked(text: str) -> str:
    """``text`` without the passwords of addresses in it: ``mysql://user:***@host``."""
    return PARAMETER.sub(rf"\1{STARS}", ADDRESS.sub(rf"\1{STARS}@", text))


def masked_yaml(config: Mapping[str, Any]) -> str:
    """The resolved configuration as yaml, the tracker's strings :func:`masked`."""
    tracker = {key: masked(value) if isinstance(value, str) else value for key, value in config["tracker"].items()}
    return OmegaConf.to_yaml({**config, "tracker": tracker})


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
