from fgl_bench.algorithms.fedsage_plus.fedsage_plus import FedSagePlus as FedSagePlus
