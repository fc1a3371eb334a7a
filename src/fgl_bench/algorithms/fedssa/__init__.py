from fgl_bench.algorithms.fedssa.fedssa import FedSSA as FedSSA
