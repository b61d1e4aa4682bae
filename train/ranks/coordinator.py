"""Address at which the processes of a job under JAX meet: a host that all of them reach, and a
port.

JAX_COORDINATOR_ADDRESS=HOST:PORT names it. Without the variable it follows from the environment of
the launcher: the first host of a Slurm step or of an LSF job, the host of Open MPI's mpirun, or
this machine if all processes are on it. Process 0 listens there, so its host must be the first.
"""

import os
import re
import socket
import zlib
from collections.abc import Mapping

from namsa.base.errors import InputError
from namsa.base.launcher import local_rank_and_size

VARIABLE = "JAX_COORDINATOR_ADDRESS"
# The ports that Linux gives no outgoing connection, above those of services.
FIRST_PORT = 16_384
PORTS = 16_384
# What is the same for all processes of a job, and differs between the jobs of a machine.
_JOB_VARIABLES = (
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "LSB_JOBID", "JSM_NAMESPACE_ID", "PMIX_NAMESPACE"),
    *("OMPI_MCA_ess_base_jobid", "PALS_APID", "HYDI_CONTROL_FD", "PMI_JOBID"),
)


def coordinator_address(processes: int, environment: Mapping[str, str] = os.environ) -> str:
    """Returns HOST:PORT at which the processes of this job meet.

    Raises:
        InputError: If the launcher's environment does not tell the host of process 0.
    """
    if given := environment.get(VARIABLE):
        return given
    host = _host(processes, environment)
    if host is None:
        raise InputError(
            f"the environment of this launcher does not tell on which host rank 0 of {processes} "
            f"is: set {VARIABLE}=HOST:PORT, with a free port of that host, for all ranks"
        )
    return f"{host}:{_port(environment)}"


def free_port() -> int:
    """Returns a port of this machine that nothing listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def first_slurm_host(node_list: str) -> str:
    """Returns the first host of a Slurm list, as node[001,007-015],host2."""
    match = re.match(r"([^,\[]*)(?:\[([^,\-\]]+)[^\]]*\])?([^,\[]*)", node_list)
    assert match  # every part may be empty
    prefix, digits, suffix = match.groups(default="")
    return prefix + digits + suffix


def _host(processes: int, environment: Mapping[str, str]) -> str | None:
    """Returns the host of process 0; `None` if nothing tells it."""
    if local_rank_and_size(environment)[1] == processes:
        return "127.0.0.1"
    if "OMPI_MCA_orte_hnp_uri" in environment:  # Open MPI 4: its first ranks are beside mpirun
        match = re.search(r"tcp6?://\[?([^,:\]]+)", environment["OMPI_MCA_orte_hnp_uri"])
        return match.group(1) if match else None
    if "SLURM_STEP_NODELIST" in environment:
        return first_slurm_host(environment["SLURM_STEP_NODELIST"])
    # LSF: host and slots of the batch node, which computes nothing, then of each compute node
    hosts = environment.get("LSB_MCPU_HOSTS", "").split()[::2]
    if "JSM_NAMESPACE_RANK" in environment and len(hosts) > 1:
        return hosts[1]
    return None


def _port(environment: Mapping[str, str]) -> int:
    """Returns a port that follows from the job; without a name of it, from the launcher's
    process.
    """
    names = []
    for variable in _JOB_VARIABLES:
        if variable in environment:
            names.append(f"{variable}={environment[variable]}")
    identity = ";".join(names) or str(os.getppid())
    return FIRST_PORT + zlib.crc32(identity.encode()) % PORTS
