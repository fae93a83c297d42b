"""A second source of traffic: written from NCCL's and PyTorch's documentation, it shares no code with `simulate`.

What `simulate` and the method both believe, a job of this source may break. A step's times follow from the order of its
operations (`execution`), a collective is one record per channel and hop (`fabric`), and `draw` makes jobs at random.
"""
