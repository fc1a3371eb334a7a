from fgl_bench.algorithms.adafgl.adafgl import AdaFGL as AdaFGL
