from fgl_bench.models.unifilter.unifilter import UniFilter as UniFilter
