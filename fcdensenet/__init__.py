"""The network: a fully convolutional DenseNet in pure Keras 3.

`fcdensenet.build.build` makes the Keras model of a `NetworkConfig`; `fcdensenet.count.count` weighs it without Keras.
"""
