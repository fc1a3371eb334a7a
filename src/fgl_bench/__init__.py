"""fgl-bench: a benchmark suite for federated graph learning whose replicas are a tensor dimension."""

__version__ = "0.1.0"
