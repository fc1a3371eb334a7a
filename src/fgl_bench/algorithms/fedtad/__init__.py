from fgl_bench.algorithms.fedtad.fedtad import FedTAD as FedTAD
