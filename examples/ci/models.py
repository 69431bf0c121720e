"""The models whose engines CI builds: each function returns a model and its example inputs."""

import torch


def classifier():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return model.eval(), (torch.zeros(4, 8),)
