"""The samples of a dataset that is copied to each node's own disk."""

from collections.abc import Collection

from ....input.source import Preparation, SampleSource
from ....staging.stage import stage, write_report


class StagedSource(SampleSource):
    """Samples of a dataset on a shared file system."""

    def prepare(self, job: Preparation) -> Collection[str] | None:
        section = self.section
        directory = self.experiment.data.directory
        with job.progress("rank 0 stages, MiB") as show_count:
            staged = stage(
                section.folder,
                directory,
                job.ranks,
                everywhere=not section.node_local,
                on_progress=show_count,
            )
        write_report(staged, job.run_dir, job.ranks, job.log_line)
        return None


SOURCE = StagedSource
