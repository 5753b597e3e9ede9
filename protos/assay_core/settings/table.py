"""The table of a program's settings for the documentation, made from their declarations."""

from __future__ import annotations

from assay_core.settings.declaration import ProgramSettings


def settings_table(model: type[ProgramSettings]) -> str:
    """Markdown: a row for each setting, with its option, variable, key in the file, default and meaning."""
    rows = ["| option | variable | key in the file | default | meaning |", "|---|---|---|---|---|"]
    for setting in model.declared():
        flag = f"`{setting.flag} {setting.metavar}`"
        meaning = (
            f"{setting.help} SIGHUP reloads it." if setting.at_runtime and model.reloads else setting.help
        )
        cells = [flag, f"`{setting.variable}`", f"`{setting.key}`", setting.default or "-", meaning]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)
