import os
import subprocess
import sys


def test_commands_draw_to_files_below_a_kernel_of_another_environment() -> None:
    code = (
        "from namsa.cli import start; start.prepare(); import matplotlib; "
        "matplotlib.use(matplotlib.get_backend()); print(matplotlib.get_backend())"
    )
    environment = os.environ | {"MPLBACKEND": "module://a_package_that_is_not_installed"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["agg"]
