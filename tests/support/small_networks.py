"""A small section of each kind of network."""

SMALL = {
    "fcdensenet": {
        "input_shape": (3, 8, 16),
        "layers": (1, 2, 1),
        "growth": 6,
        "first_filters": 8,
        "kernel": 3,
    },
    "resnet50": {"input_shape": (2, 24, 33), "units": (1, 2), "width": 4, "classes": 5},
    "cvae": {"input_shape": (2, 6, 9), "filters": (5, 4), "hidden": 16, "latent": 3},
    "deeplabv3plus": {
        "input_shape": (3, 16, 24),
        "units": (2, 1, 1, 1),
        "width": 4,
        "rates": (2, 3),
        "filters": 8,
    }
    | {"low_level_filters": 5, "skip_filters": (4, 6)},
    "cosmoflow": {
        "input_shape": (2, 8, 16, 12),
        "filters": (4, 6, 8),
        "strides": (1, 2, 1),
        "dense": (16, 8),
    },
    "unet3d": {"input_shape": (2, 4, 8, 12), "levels": 2, "first_filters": 4},
    "lenet": {"input_shape": (2, 16, 19), "classes": 5},
    "alexnet": {
        "input_shape": (2, 59, 66),
        "classes": 5,
        "filters": ((4,), (6,), (8, 8)),
        "dense": (16,),
    },
    "vgg": {
        "input_shape": (2, 9, 13),
        "classes": 5,
        "filters": ((4,), (6, 8)),
        "kernels": (3, 5),
        "dense": (16,),
    },
}
