"""Writes a profile into a folder, which may be that of a run: its report then has the profile, too."""

import json
from pathlib import Path

from namsa.files import make_folder, write_text_atomic

from ..measure.profile_results import FILE_NAME, Profile
from ..reports.timeline_figure import timeline_figure
from ..tasks.reporting import write_report


def write(profile: Profile, folder: Path) -> list[Path]:
    """Writes profile.json and timeline.png, and a run's report again if there is one; returns the files.

    Args:
        folder: Where to write; made if it does not exist.

    Raises:
        WorkError: If a file cannot be written.
    """
    make_folder(folder)
    table, picture, report = folder / FILE_NAME, folder / "timeline.png", folder / "report.html"
    write_text_atomic(table, json.dumps(profile) + "\n")
    timeline_figure(profile).savefig(picture, dpi=150)
    return [table, picture, write_report(folder)] if report.exists() else [table, picture]
