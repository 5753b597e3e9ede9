"""Reloading a program's settings: what changes now, what waits for a restart."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Generic, TypeVar

from assay_core.settings.declaration import DeclaredSetting, ProgramSettings, value_text

Settings = TypeVar("Settings", bound=ProgramSettings)


@dataclass(frozen=True)
class Reloaded(Generic[Settings]):
    """The settings in force after a reload, what changed, and what changes only with a restart."""

    settings: Settings
    changed: tuple[DeclaredSetting, ...]
    waiting: tuple[DeclaredSetting, ...]

    def log(self, log: logging.Logger, before: Settings, new_settings: Settings) -> None:
        """Say so, as warnings: somebody who reloads wants to see it at every log level."""
        for setting in self.changed:
            old, new = getattr(before, setting.field), getattr(self.settings, setting.field)
            log.warning(
                "reload: %s is now %s (was %s)", setting.key, *(_shown(setting, each) for each in (new, old))
            )
        for setting in self.waiting:
            new = _shown(setting, getattr(new_settings, setting.field))
            log.warning("reload: %s becomes %s only with a restart", setting.key, new)
        if not self.changed and not self.waiting:
            log.warning("reload: no setting has changed")


def reloaded(before: Settings, new_settings: Settings) -> Reloaded[Settings]:
    """The settings ``before`` with those of ``new_settings`` that may change while the program runs.

    Raises ParameterError if the two do not fit together.
    """
    differ = [s for s in before.declared() if getattr(before, s.field) != getattr(new_settings, s.field)]
    changed = tuple(setting for setting in differ if setting.at_runtime)
    waiting = tuple(setting for setting in differ if not setting.at_runtime)
    values = {setting.field: getattr(before, setting.field) for setting in before.declared()}
    values |= {setting.field: getattr(new_settings, setting.field) for setting in changed}
    return Reloaded(type(before)(**values), changed, waiting)


def _shown(setting: DeclaredSetting, value: object) -> str:
    return value_text(value, setting.unit) or "not set"
