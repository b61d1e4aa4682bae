# JAX on NVIDIA for scripts/perlmutter.sh, from the top of the checkout. It has not been built or run.
#   scripts/wheels.sh
#   podman-hpc build --file scripts/packaging/perlmutter.Dockerfile --tag namsa-jax .
#   podman-hpc migrate namsa-jax
#   srun ... podman-hpc run --rm --gpu --nccl --volume "$PWD:$PWD" --workdir "$PWD" namsa-jax namsa-train ...
# The site's NCCL plugin for Slingshot is added by --nccl.
FROM debian:bookworm-slim
COPY scripts/packaging/install.sh dist /tmp/dist/
RUN sh /tmp/dist/install.sh /tmp/dist jax \
    && /opt/namsa/bin/pip install --no-cache-dir --constraint /tmp/dist/versions.txt 'jax[cuda12]' cupy-cuda12x \
    && rm -rf /tmp/dist
ENV PATH=/opt/namsa/bin:$PATH KERAS_BACKEND=jax
CMD ["namsa", "--help"]
