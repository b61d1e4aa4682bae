"""What the device of a rank computes."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from train.execution.tensorflow import check_data_format


def test_orders_of_axes_that_the_device_computes_pass() -> None:
    check_data_format("channels_last")
    check_data_format("channels_first")


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="a GPU computes every order")
def test_channels_first_is_refused_where_tensorflow_does_not_compute_it() -> None:
    code = (
        "from namsa.errors import InputError\nfrom train.execution.tensorflow import check_data_format\n"
        "check_data_format('channels_last')\n"
        "try:\n    check_data_format('channels_first')\nexcept InputError as error:\n    print(error)"
    )
    without = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=without, capture_output=True, text=True, check=True)
    assert "set network.data_format to channels_last" in done.stdout
