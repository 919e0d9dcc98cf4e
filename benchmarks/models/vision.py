"""Networks for images: ResNet, MobileNetV2, U-Net, as their papers give them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_bn(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    """Convolution without bias that keeps the image's size at stride 1, normalisation, activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    layers: list[nn.Module] = [conv, nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act] if act is not None else []))


class Residual(nn.Module):
    """ResNet's blocks: two 3×3 convolutions, or 1×1, 3×3 and 1×1 with four times the channels behind (He et al. 2016)."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            first = conv_bn(inputs, width, 1, act=nn.ReLU())
            second = conv_bn(width, width, 3, stride, act=nn.ReLU())
            self.body = nn.Sequential(first, second, conv_bn(width, outputs, 1))
        else:
            self.body = nn.Sequential(conv_bn(inputs, width, 3, stride, act=nn.ReLU()), conv_bn(width, width, 3))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """``[n, 3, h, w]`` → classes; ResNet-18 with ``depths=(2, 2, 2, 2)``, -50 with ``depths=(3, 4, 6, 3), bottleneck=True``."""

    def __init__(self, depths: tuple[int, ...], bottleneck: bool = False, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, 64, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, depth in enumerate(depths):
            for i in range(depth):
                block = Residual(channels, 64 << stage, 2 if stage and not i else 1, bottleneck)
                channels = block.outputs
                layers.append(block)
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


class InvertedResidual(nn.Module):
    """MobileNetV2's block: wide inside, depthwise, narrow outside (Sandler et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        widen = [conv_bn(inputs, hidden, 1, act=nn.ReLU6())] if expand != 1 else []
        depthwise = conv_bn(hidden, hidden, 3, stride, groups=hidden, act=nn.ReLU6())
        self.body = nn.Sequential(*widen, depthwise, conv_bn(hidden, outputs, 1))
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.has_shortcut else self.body(x)


class MobileNetV2(nn.Module):
    """``[n, 3, h, w]`` → classes."""

    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, 32, 3, 2, act=nn.ReLU6())]
        channels = 32
        for expand, outputs, depth, stride in self.STAGES:
            for i in range(depth):
                layers.append(InvertedResidual(channels, outputs, stride if not i else 1, expand))
                channels = outputs
        layers.append(conv_bn(channels, 1280, 1, act=nn.ReLU6()))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


class UNet(nn.Module):
    """Segmentation with skipped connections, transposed convolutions on the way up (Ronneberger et al. 2015, padded)."""

    def __init__(self, channels: int = 3, classes: int = 2, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList(self._pair(i, o) for i, o in zip([channels, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(self._pair(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _pair(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(conv_bn(inputs, outputs, 3, act=nn.ReLU()), conv_bn(outputs, outputs, 3, act=nn.ReLU()))

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for i, pair in enumerate(self.down):
            x = pair(x if not i else nn.functional.max_pool2d(x, 2))
            skipped.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(skipped[:-1]), strict=True):
            x = join(torch.cat([skip, up(x)], dim=1))
        return self.head(x)
