"""Samplers: they run a policy in environments and give episodes. See `workers` and `sampler`."""

from rla_client.launcher.episode_batch import EpisodeBatch, StepType
from rla_client.launcher.samplers.factory import WorkerFactory
from rla_client.launcher.samplers.local import LocalSampler
from rla_client.launcher.samplers.multiprocessing import MultiprocessingSampler
from rla_client.launcher.samplers.ray import RaySampler
from rla_client.launcher.samplers.sampler import Sampler
from rla_client.launcher.samplers.workers import DefaultWorker, FragmentWorker, VecWorker, Worker

__all__ = [
    "DefaultWorker",
    "EpisodeBatch",
    "FragmentWorker",
    "LocalSampler",
    "MultiprocessingSampler",
    "RaySampler",
    "Sampler",
    "StepType",
    "VecWorker",
    "Worker",
    "WorkerFactory",
]
