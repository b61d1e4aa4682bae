"""The training step of `train.optimization.loop` in PyTorch, for step_vs_torch.py, in an environment of its own.

The words of "variant": "compiled" (Inductor) or eager; "channels_last" or PyTorch's own layout.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from answer_requests import answer_requests
from torch import Tensor, nn
from torch.nn import functional as F

MIN_SPREAD = 0.01  # the default of training.loss.least_contrast
NORM = {"eps": 1e-3, "momentum": 0.1}  # of fcdensenet.keras_layers; PyTorch's momentum is 1 minus Keras'


class TransitionUp(nn.ConvTranspose2d):
    """A transposed convolution of stride 2 onto exactly twice the grid, as Keras pads it."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__(channels, channels, kernel, stride=2, bias=False, output_padding=int(kernel == 1))
        self.before = max(kernel - 2, 0) // 2

    def forward(self, x: Tensor) -> Tensor:
        y, first = super().forward(x), self.before
        height, width = 2 * x.shape[2], 2 * x.shape[3]
        if y.shape[2:] == (height, width):
            return y
        return y[:, :, first : first + height, first : first + width]


class DenseBlock(nn.Module):
    """Convolutions that each see the rectified stack of all maps so far; returns the new ones."""

    def __init__(self, channels: int, convolutions: int, network: dict[str, Any]) -> None:
        super().__init__()
        growth, kernel = network["growth"], network["kernel"]
        self.conv = nn.ModuleList(
            nn.Conv2d(channels + i * growth, growth, kernel, padding="same") for i in range(convolutions)
        )
        self.dropout = nn.Dropout(network["dropout"])

    def forward(self, x: Tensor) -> Tensor:
        maps = [x]
        for convolution in self.conv:
            maps.append(convolution(F.relu(torch.cat(maps, 1))))
        return self.dropout(F.relu(torch.cat(maps[1:], 1)))


class FCDenseNet(nn.Module):
    """`fcdensenet.build.network`, with the same names of layers."""

    def __init__(self, network: dict[str, Any]) -> None:
        super().__init__()
        layers, growth = network["layers"], network["growth"]
        self.pools = len(layers) // 2
        channels = network["first_filters"]
        first_kernel = network["first_kernel"]
        self.first = nn.Conv2d(network["input_shape"][0], channels, first_kernel, padding="same")
        self.pool = nn.AvgPool2d(2) if network["pooling"] == "average" else nn.MaxPool2d(2)
        skips = []
        for level in range(1, self.pools + 1):
            self.add_module(f"down{level}", DenseBlock(channels, layers[level - 1], network))
            channels += layers[level - 1] * growth
            skips.append(channels)
            self.add_module(f"td{level}_norm", nn.BatchNorm2d(channels, **NORM))
            self.add_module(f"td{level}_conv", nn.Conv2d(channels, channels, 1, bias=False))
        self.bottom = DenseBlock(channels, layers[self.pools], network)
        new = layers[self.pools] * growth
        for level, convolutions in zip(range(self.pools, 0, -1), layers[self.pools + 1 :], strict=True):
            self.add_module(f"tu{level}_conv", TransitionUp(new, network["transition_up_kernel"]))
            channels = new + skips.pop()
            self.add_module(f"up{level}", DenseBlock(channels, convolutions, network))
            new = convolutions * growth
        self.last = nn.Conv2d(channels + new, network["output_channels"], 1)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.first(x), []
        for level in range(1, self.pools + 1):
            skips.append(torch.cat([x, self.get_submodule(f"down{level}")(x)], 1))
            x = F.relu(self.get_submodule(f"td{level}_norm")(skips[-1]))
            x = self.pool(self.get_submodule(f"td{level}_conv")(x))
        new = self.bottom(x)
        for level in range(self.pools, 0, -1):
            x = torch.cat([self.get_submodule(f"tu{level}_conv")(new), skips.pop()], 1)
            new = self.get_submodule(f"up{level}")(x)
        return self.last(torch.cat([x, new], 1))


def named_as_in_keras(model: FCDenseNet) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Keras' path of each variable, the tensor, and the order of its axes in Keras."""
    norm = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            block, _, index = name.partition(".conv.")  # a block's convolutions count from 1 in Keras
            layer = f"{block}_conv{int(index) + 1}" if index else block
            yield f"{layer}/kernel", module.weight, (2, 3, 1, 0)
            if module.bias is not None:
                yield f"{layer}/bias", module.bias, (0,)
        elif isinstance(module, nn.BatchNorm2d):
            for own, keras in norm.items():
                yield f"{name}/{keras}", getattr(module, own), (0,)


def huber(prediction: Tensor, target: Tensor, delta: float, relative: bool) -> Tensor:
    error = (prediction - target).abs()
    if relative:
        error = error / target.std((1, 2, 3), correction=0, keepdim=True).clamp_min(MIN_SPREAD)
    inner = error.clamp_max(delta)
    return (inner * (error - 0.5 * inner)).mean()


class Job:
    """A network, its optimizer and a batch."""

    def __init__(self, asked: dict[str, Any]) -> None:
        torch.set_num_threads(asked["threads"])
        torch.manual_seed(1)
        self.loss, self.settings = asked["training"]["loss"], asked["training"]["optimizer"]
        if self.settings["lars"] != "before" or self.settings["layer_rates"] != "lars":
            raise SystemExit("only LARS before Adam is written here")
        self.delta = asked["delta"]
        words = asked["variant"].split()
        layout = torch.channels_last if "channels_last" in words else torch.contiguous_format
        model = FCDenseNet(asked["network"])
        with np.load(asked["weights"]) as stored, torch.no_grad():
            for path, tensor, axes in named_as_in_keras(model):
                tensor.copy_(torch.from_numpy(stored[path]).permute(*np.argsort(axes).tolist()))
        self.model = model.to(memory_format=layout).train()
        with np.load(asked["batch"]) as stored:
            x, y = (torch.from_numpy(stored[name]).permute(0, 3, 1, 2) for name in ("x", "y"))
        self.x, self.y = x.contiguous(memory_format=layout), y.contiguous(memory_format=layout)
        self.weights = list(self.model.parameters())
        self.kernels = [weight for weight in self.weights if weight.ndim == 4]
        betas = self.settings["beta_1"], self.settings["beta_2"]
        self.adam = torch.optim.Adam(self.weights, asked["rate"], betas, self.settings["epsilon"], fused=True)
        self.forward = torch.compile(self.forward_loss) if "compiled" in words else self.forward_loss

    def forward_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return huber(self.model(x), y, self.delta, self.loss["relative"])

    def step(self) -> list[float]:
        """One update. Returns the Huber loss, the penalty, and the norm of the gradient."""
        loss = self.forward(self.x, self.y)
        loss.backward()
        with torch.no_grad():
            gradients = [weight.grad for weight in self.kernels]
            # The gradient of the penalty, without a graph for it; its value comes from the norms that LARS needs.
            torch._foreach_add_(gradients, self.kernels, alpha=self.loss["l2"])
            norms = torch.stack(torch._foreach_norm(self.kernels))
            penalty = 0.5 * self.loss["l2"] * norms.square().sum()
            gradient_norms = torch.stack(torch._foreach_norm(gradients))
            others = torch._foreach_norm([weight.grad for weight in self.weights if weight.ndim != 4])
            norm = torch.cat([gradient_norms, torch.stack(others)]).norm()
            defined = (norms > 0) & (gradient_norms > 0)
            ratios = torch.where(defined, self.settings["lars_trust"] * norms / gradient_norms, 1.0)
            torch._foreach_mul_(gradients, list(ratios.unbind()))
        self.adam.step()
        self.adam.zero_grad()
        return torch.stack([loss.detach(), penalty, norm]).tolist()

    def save(self, path: str) -> None:
        arrays = {
            name: tensor.detach().permute(*axes).contiguous().numpy()
            for name, tensor, axes in named_as_in_keras(self.model)
        }
        np.savez(path, **arrays)


if __name__ == "__main__":
    answer_requests(torch.__version__, Job)
