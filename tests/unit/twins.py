"""Small networks in torch and in Keras with the same weights, for the tests that compare the two frameworks."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
import torch
from torch import nn

from shapeline.models.classifier import Classifier

WORDS, LENGTH, CLASSES = 20, 9, 3


class TorchText(nn.Module):
    """Embedding, convolution over three words, the largest over positions, dense."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 6, padding_idx=0)
        self.convolution, self.dense = nn.Conv1d(6, 8, 3), nn.Linear(8, CLASSES)

    def embed(self, ids):
        return self.embedding(ids)

    def from_embedding(self, embedded, ids):
        return self.dense(torch.tanh(self.convolution(embedded.transpose(1, 2))).amax(2))

    def forward(self, ids):
        return self.from_embedding(self.embed(ids), ids)


class KerasText(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(WORDS, 6)
        self.convolution, self.dense = keras.layers.Conv1D(8, 3, activation="tanh"), keras.layers.Dense(CLASSES)

    def embed(self, ids):
        return self.embedding(ids)

    def from_embedding(self, embedded, ids):
        return self.dense(tf.reduce_max(self.convolution(embedded), 1))

    def call(self, ids):
        return self.from_embedding(self.embed(ids), ids)


class TorchImage(nn.Module):
    def __init__(self, channels=2):
        super().__init__()
        self.convolution, self.dense = nn.Conv2d(channels, 5, 3), nn.Linear(5 * 16, CLASSES)

    def forward(self, images):
        return self.dense(torch.tanh(self.convolution(images)).flatten(1))


class KerasImage(keras.Model):
    """Channels first outside, last inside, where Keras on a CPU wants them."""

    def __init__(self):
        super().__init__()
        self.convolution, self.dense = keras.layers.Conv2D(5, 3, activation="tanh"), keras.layers.Dense(CLASSES)

    def call(self, images):
        maps = self.convolution(tf.transpose(images, [0, 2, 3, 1]))
        return self.dense(tf.reshape(tf.transpose(maps, [0, 3, 1, 2]), [-1, 5 * 16]))


def text(seed=0) -> tuple[Classifier, Classifier]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        one = TorchText().eval()
    other = KerasText()
    other(np.zeros((1, LENGTH), np.int32))
    other.embedding.set_weights([_array(one.embedding.weight)])
    other.convolution.set_weights([_array(one.convolution.weight).transpose(2, 1, 0), _array(one.convolution.bias)])
    other.dense.set_weights([_array(one.dense.weight).T, _array(one.dense.bias)])
    return torch_classifier(one), keras_classifier(other)


def image(seed=0) -> tuple[Classifier, Classifier]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        one = TorchImage().eval()
    other = KerasImage()
    other(np.zeros((1, 2, 6, 6), np.float32))
    other.convolution.set_weights([_array(one.convolution.weight).transpose(2, 3, 1, 0), _array(one.convolution.bias)])
    other.dense.set_weights([_array(one.dense.weight).T, _array(one.dense.bias)])
    return torch_classifier(one), keras_classifier(other)


class KerasWithSpare(keras.Model):
    """The last convolution does not reach the output: it is never called, or called in vain."""

    def __init__(self, called):
        super().__init__()
        self.called, self.used = called, keras.layers.Conv2D(2, 3, name="used")
        self.dense, self.spare = keras.layers.Dense(CLASSES), keras.layers.Conv2D(2, 3, name="spare")

    def call(self, images):
        images = tf.transpose(images, [0, 2, 3, 1])
        if self.called:
            self.spare(images)
        maps = self.used(images)
        return self.dense(tf.reshape(maps, [-1, maps.shape[1] * maps.shape[2] * 2]))


def keras_with_spare(called) -> Classifier:
    model = KerasWithSpare(called)
    model(np.zeros((1, 1, 8, 8), np.float32))
    return keras_classifier(model)


def linear(weights, bias) -> tuple[Classifier, Classifier]:
    """weights (classes, inputs), bias (classes,)."""
    one = nn.Linear(weights.shape[1], weights.shape[0])
    one.load_state_dict({"weight": torch.tensor(weights), "bias": torch.tensor(bias)})
    other = keras.Sequential([keras.layers.Input((weights.shape[1],)), keras.layers.Dense(weights.shape[0])])
    other.set_weights([np.asarray(weights).T, np.asarray(bias)])
    return torch_classifier(one), keras_classifier(other)


def torch_classifier(module) -> Classifier:
    return Classifier("torch", type(module).__name__, module, CLASSES, outputs="logits")


def keras_classifier(module) -> Classifier:
    return Classifier("tensorflow", type(module).__name__, module, CLASSES, outputs="logits")


def _array(tensor) -> np.ndarray:
    return tensor.detach().numpy()
