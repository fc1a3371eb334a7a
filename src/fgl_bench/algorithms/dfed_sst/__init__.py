from fgl_bench.algorithms.dfed_sst.dfed_sst import DFedSST as DFedSST
