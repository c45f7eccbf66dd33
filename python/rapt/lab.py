# SPDX-License-Identifier: Apache-2.0
"""The laboratory: each "why" of the field as an experiment, and experiments of your own.

>>> import rapt.lab
>>> [e.name for e in rapt.lab.experiments()][:3]
['softmax', 'scale', 'score']
"""
from ._lab import Experiment, Finding, Findings, Lab, Result, experiment, experiments, run

__all__ = ["Experiment", "Finding", "Findings", "Lab", "Result", "experiment", "experiments", "run"]
