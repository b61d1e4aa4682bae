"""The networks that a job can train: FC-DenseNet, and those of the neighbouring papers.

Each is one module: a frozen section of the configuration, and a function that composes the network
over abstract layers. `build` makes the Keras model of a section, `count` its parameters, FLOP and
activation memory without Keras.

| kind | network |
|---|---|
| fcdensenet | FC-DenseNet (Laanait et al. 2019), or the Tiramisu of Kurth et al. 2018 |
| resnet50 | ResNet-50 for classes of images (Yoginath et al. 2019) |
| cvae | convolutional variational autoencoder (Yoginath et al. 2019) |
| deeplabv3plus | DeepLabv3+ for classes of pixels (Kurth et al. 2018) |
| cosmoflow | CosmoFlow for numbers from a volume (Oyama et al. 2020) |
| unet3d | 3-D U-Net for values of voxels (Oyama et al. 2020) |
| lenet, alexnet, vgg | classifiers of images that Yoginath et al. 2019 name |
"""

from .registry import Network, build, count, count_part, read_network

__all__ = ["Network", "build", "count", "count_part", "read_network"]
