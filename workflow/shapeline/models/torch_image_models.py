"""The larger torch architectures of images; every activation is a module of its own, called once, for hooks."""

import torch
from torch import nn

# Of the images that torchvision's weights were trained on, in [0, 1]: red, green, blue.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Standard(nn.Module):
    """Images in [0, 1] as torchvision's weights expect them, around 0; without three channels by the means."""

    def __init__(self, channels: int):
        super().__init__()
        for name, numbers in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD)):
            own = torch.tensor(numbers) if channels == 3 else torch.full((channels,), sum(numbers) / 3)
            # Never stored: a state dict has torchvision's names alone.
            self.register_buffer(name, own.view(-1, 1, 1), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (images - self.mean) / self.std


class DeepSequential(nn.Sequential):
    """Stack layers initialised as by He et al. (2015), without which six convolutions learn nothing at first."""

    def reset_parameters(self) -> None:
        for layer in self:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)


def cifar_cnn(classes: int = 2, channels: int = 3, side: int = 32) -> nn.Module:
    """Build Chen et al.'s (2018, §5.2) network for CIFAR-10: six 3x3 convolutions in pairs, dense 512 and 256.

    48, 96, 192 filters, max-pool 2 and dropout 0.25 after each pair. The first of each pair is padded, as the paper
    names none and nothing is left otherwise: 1,170,354 parameters.
    """
    layers: list[nn.Module] = [Standard(channels)]
    before = channels
    for filters in (48, 96, 192):
        layers += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU(), nn.Conv2d(filters, filters, 3), nn.ReLU()]
        layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
        before, side = filters, (side - 2) // 2
    network = DeepSequential(
        *layers,
        nn.Flatten(),
        *(nn.Linear(192 * side * side, 512), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(256, classes),
    )
    network.reset_parameters()
    return network


def crosses_cnn(
    classes: int = 2, channels: int = 3, height: int = 100, width: int = 120, dropout: float = 0.5
) -> nn.Module:
    """Build the ConvNet of Teneggi et al. (2021, table 1), unpadded, 100x120 -> 48x58 -> 9x11, 202,542 parameters."""
    rows, columns = (((side - 4) // 2 - 3) // 5 for side in (height, width))
    network = DeepSequential(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 4), nn.ReLU(), nn.MaxPool2d(5)),
        nn.Flatten(),
        *(nn.Linear(16 * rows * columns, 120), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Dropout(dropout)),
        nn.Linear(84, classes),
    )
    network.reset_parameters()
    return network


class BasicBlock(nn.Module):
    """Two 3x3 convolutions whose result is added to what they were given."""

    def __init__(self, before: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu2 = nn.ReLU()
        self.downsample = nn.Sequential()
        if stride > 1 or before != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        new = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(maps)))))
        return self.relu2(new + self.downsample(maps))


class ResNet18(nn.Module):
    """The network of `resnet18`; names and shapes of its tensors are torchvision's."""

    def __init__(self, classes: int, channels: int):
        super().__init__()
        self.standard = Standard(channels)
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(512, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.maxpool(self.relu(self.bn1(self.conv1(self.standard(images)))))
        maps = self.layer4(self.layer3(self.layer2(self.layer1(maps))))
        return self.fc(self.flatten(self.avgpool(maps)))


def resnet18(classes: int = 1000, channels: int = 3) -> nn.Module:
    """Build ResNet-18 (He et al. 2016) for images of any size, standardised by ImageNet's mean and deviation."""
    return ResNet18(classes, channels)
