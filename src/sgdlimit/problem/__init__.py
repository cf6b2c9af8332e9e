"""What is learned: `Problem` and the words it is written in."""

from .attention import Attention, AttentionLabels
from .data import DataLaw, Iid, PowerLaw, Spectrum, Table
from .fields import VectorField
from .labels import ArgMax, ByClass, LabelRule, Labels, Linear, Logit, Noise, Sign, TwoLayerLabels
from .laws import EntryLaw, Law, Normal, Point, Rademacher, SparseNormal, Uniform
from .losses import (
    Absolute,
    Exponential,
    Hinge,
    Huber,
    Logistic,
    Loss,
    LossLike,
    MultiClass,
    Quantile,
    SmoothHinge,
    Square,
    TwoLayer,
)
from .mixture import Mixture
from .penalties import L1, NoPenalty, Penalty, PenaltyLike, Quartic, Ridge, SmoothL1
from .pooling import MaxPool, MeanPool, PoolLabels
from .problem import Problem
from .random_features import RandomFeatures
from .ranking import Contrastive, ListwiseLabels, ListwiseRanking, PairwiseLabels, PairwiseRanking, SameSide
from .rows import CustomEntries, GaussianEntries, RademacherEntries, SparseEntries, UniformEntries
from .schedules import Constant, CosineDecay, PowerDecay, Schedule
from .sequences import Sequence
from .starts import Towards
from .trained import Trained

__all__ = [
    "L1", "Absolute", "ArgMax", "Attention", "AttentionLabels", "ByClass", "Constant", "Contrastive", "CosineDecay",
    "CustomEntries", "DataLaw", "EntryLaw", "Exponential", "GaussianEntries", "Hinge", "Huber", "Iid", "LabelRule",
    "Labels", "Law", "Linear", "ListwiseLabels", "ListwiseRanking", "Logistic", "Logit", "Loss", "LossLike",
    "MaxPool", "MeanPool", "Mixture", "MultiClass", "NoPenalty", "Noise", "Normal", "PairwiseLabels",
    "PairwiseRanking", "Penalty", "PenaltyLike", "Point", "PoolLabels", "PowerDecay", "PowerLaw", "Problem",
    "Quantile", "Quartic", "Rademacher", "RademacherEntries", "RandomFeatures", "Ridge", "SameSide", "Schedule",
    "Sequence", "Sign", "SmoothHinge", "SmoothL1", "SparseEntries", "SparseNormal", "Spectrum", "Square", "Table",
    "Towards", "Trained", "TwoLayer", "TwoLayerLabels", "Uniform", "UniformEntries", "VectorField",
]  # fmt: skip
