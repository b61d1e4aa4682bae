raise ImportError("a job under JAX imports horovod")
